/** What uplot.js exports: the package's own types. */

import uPlot from "uplot";

export default uPlot;
export type Options = uPlot.Options;
