"""Settings come from a file, then the environment, then flags; a wrong one names its place."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from rowtide.cli.settings import Settings, SettingsError, flag, load_settings, variable


def config(folder: Path, text: str) -> Path:
    file = folder / "rowtide.toml"
    file.write_text(text)
    return file


def test_without_anything_the_defaults_hold() -> None:
    assert load_settings(None, {}, {}) == Settings()


def test_the_environment_wins_over_the_file_and_a_flag_over_both(tmp_path: Path) -> None:
    file = config(tmp_path, 'port = 1\nslots = 2\ninstance = "from-file"\n')
    environment = {"ROWTIDE_PORT": "3", "ROWTIDE_SLOTS": "4"}
    found = load_settings(file, environment, {"port": 5, "slots": None, "instance": None})
    assert (found.port, found.slots, found.instance) == (5, 4, "from-file")


def test_every_setting_can_be_a_variable() -> None:
    given: dict[str, tuple[str, Any]] = {
        "data_dir": ("/d", Path("/d")),
        "host": ("0.0.0.0", "0.0.0.0"),
        "port": ("1", 1),
        "instance": ("abc", "abc"),
        "log": ("kafka", "kafka"),
        "kafka": ("h:1,i:2", "h:1,i:2"),
        "topic_prefix": ("p", "p"),
        "durability": ("replicated", "replicated"),
        "slots": ("9", 9),
        "standbys": ("1", 1),
        "lease_ms": ("1500", 1500),
        "cache_dir": ("/c", Path("/c")),
        "java": ("/j", Path("/j")),
        "free_bytes_min": ("0", 0),
        "reclaim_rows_per_s": ("1", 1),
        "partition_units_per_s": ("10000", 10_000),
        "table_operations_per_s": ("0", 0),
        "split_bytes": ("0", 0),
        "split_writes_per_s": ("500", 500),
        "merge_after_s": ("60", 60),
        "workers": ("2", 2),
        "advertise": ("a", "a"),
        "metrics": ("true", True),
        "connectors": ("false", False),
        "connector_dir": ("/c", Path("/c")),
        "console": ("false", False),
        "console_url": ("https://c.example", "https://c.example"),
        "console_hide": ("orders.card,people.phone", "orders.card,people.phone"),
        "log_format": ("json", "json"),
        "slow_request_s": ("0.5", 0.5),
        "drain_notice_s": ("5", 5.0),
    }
    found = load_settings(None, {variable(n): text for n, (text, _) in given.items()}, {})
    assert {name: getattr(found, name) for name in given} == {n: v for n, (_, v) in given.items()}
    assert {*given, "kafka_security"} == {f.name for f in fields(Settings)}


@pytest.mark.parametrize(
    ("host", "metrics", "served"),
    [
        ("127.0.0.1", None, True),
        ("::1", None, True),
        ("localhost", None, True),
        ("0.0.0.0", None, False),
        ("::", None, False),
        ("rowtide.example", None, False),
        ("0.0.0.0", True, True),
        ("127.0.0.1", False, False),
    ],
)
def test_metrics_are_for_this_machine_unless_said_otherwise(
    host: str, metrics: bool | None, served: bool
) -> None:
    assert Settings(host=host, metrics=metrics).serves_metrics is served


@pytest.mark.parametrize(
    ("host", "advertise"),
    [("127.0.0.1", "127.0.0.2"), ("0.0.0.0", "w1"), ("10.0.0.1", "192.0.2.7"), ("::", "")],
)
def test_what_is_told_to_other_workers_may_be_listened_on(host: str, advertise: str) -> None:
    assert Settings(host=host, advertise=advertise).advertise == advertise


def test_a_foreign_variable_is_passed_over() -> None:
    assert load_settings(None, {"ROWTIDE_SERVICE_HOST": "10.0.0.1"}, {}) == Settings()


def test_the_security_table_is_read(tmp_path: Path) -> None:
    file = config(
        tmp_path,
        'kafka = "h:1"\n[kafka_security]\nprotocol = "SASL_SSL"\nsasl_username = "u"\n'
        'sasl_password = "p"\n',
    )
    security = load_settings(file, {}, {}).kafka_security
    assert (security.protocol, security.sasl_username, security.sasl_password) == (
        "SASL_SSL",
        "u",
        "p",
    )


def test_a_tilde_is_the_home_directory() -> None:
    assert load_settings(None, {"ROWTIDE_DATA_DIR": "~/x"}, {}).data_dir == Path.home() / "x"


FAULTS = [
    ("prot = 1", "rowtide.toml: unknown setting 'prot': known are .*port"),
    ("port = true", "rowtide.toml: port: True is not a whole number"),
    ('port = "1"', "rowtide.toml: port: '1' is not a whole number"),
    ("host = 5", "rowtide.toml: host: 5 is not a text in quotes"),
    ("port = ", "rowtide.toml: Invalid value"),
    ("port = 65536", "port must be 0 to 65535, not 65536"),
    ("port = 65534\nworkers = 3", "port must be 0 to 65533 with 3 workers, not 65534"),
    ("slots = 0", "slots must be 1 to 1024, not 0"),
    ('instance = "-"', "instance must be 3-16 letters"),
    ('kafka = "host"', "kafka must be HOST:PORT"),
    ('topic_prefix = "a.b"', "topic_prefix must be 1-64 letters"),
    ("console = 1", "rowtide.toml: console: 1 is neither true nor false"),
    ('console_url = "console"', "console_url must be https://HOST"),
    ('console_hide = "card"', "console_hide must be TABLE.COLUMN"),
    ('console_hide = ["orders.card", 5]', "rowtide.toml: console_hide: 5 is not a text in quotes"),
    ("metrics = 1", "rowtide.toml: metrics: 1 is neither true nor false"),
    ('slow_request_s = "1"', "rowtide.toml: slow_request_s: '1' is not a number"),
    ("slow_request_s = -1", "slow_request_s must be 0 to 3600, not -1.0"),
    ('log_format = "xml"', "log_format must be text or json, not 'xml'"),
    ('durability = "sometimes"', "durability must be fsync or replicated, not 'sometimes'"),
    ('durability = "replicated"', "'replicated' needs a cluster of three brokers"),
    (
        'advertise = "10.0.0.1"',
        "advertise '10.0.0.1' is for other workers, but host '127.0.0.1' .*--host",
    ),
    ('host = "localhost"\nadvertise = "w1"', "advertise 'w1' is for other .* 'localhost' can"),
    ("kafka_security = 1", "kafka_security: is a table"),
    ("[kafka_security]\nuser = 1", "unknown setting 'user': known are protocol"),
    ('[kafka_security]\nprotocol = "X"', "protocol 'X' is none of"),
    ('[kafka_security]\nprotocol = "SASL_SSL"', "SASL_SSL needs sasl_username"),
    ('[kafka_security]\nprotocol = "SSL"', "kafka_security has no meaning without kafka"),
]


@pytest.mark.parametrize(("text", "why"), FAULTS)
def test_a_fault_of_the_file_names_its_place(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=why):
        load_settings(config(tmp_path, text), {}, {})


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.toml: .*No such file"):
        load_settings(tmp_path / "absent.toml", {}, {})


def test_a_fault_of_the_environment_names_the_variable() -> None:
    with pytest.raises(SettingsError, match=r"ROWTIDE_PORT: 'tcp://10\.0\.0\.1:1' is not a whole"):
        load_settings(None, {"ROWTIDE_PORT": "tcp://10.0.0.1:1"}, {})


def test_hidden_columns_are_a_list_in_the_file(tmp_path: Path) -> None:
    file = config(tmp_path, 'console_hide = ["orders.card", "people.phone"]')
    assert load_settings(file, {}, {}).console_hide == "orders.card,people.phone"


@pytest.mark.parametrize(("port", "console"), [(0, 0), (8087, 9087), (64535, 65535), (64536, 0)])
def test_the_console_is_a_thousand_above_or_anywhere(port: int, console: int) -> None:
    assert Settings(port=port).console_port == console


def test_names_are_spelt_for_their_place() -> None:
    assert (flag("data_dir"), variable("data_dir")) == ("--data-dir", "ROWTIDE_DATA_DIR")
