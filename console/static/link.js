// Sends the code of a one-time link. The code is in the address's fragment, which browsers send to
// no server; it leaves the address and the history first.

const code = location.hash.slice(1);
const form = document.getElementById("link");
if (code && form instanceof HTMLFormElement) {
  history.replaceState(null, "", location.pathname);
  const field = form.elements.namedItem("code");
  if (field instanceof HTMLInputElement) {
    field.value = code;
    form.requestSubmit();
  }
}
