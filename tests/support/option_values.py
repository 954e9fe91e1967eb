"""Values of option files, as the servers' own program reads them."""

from __future__ import annotations

# The text after password=, as the clients of MySQL 9.7 and MariaDB 11.8 print it (my_print_defaults --show).
OPTION_VALUES = [
    ("plain", "plain"),
    ("  two words\t ", "two words"),
    ("a=b=c", "a=b=c"),
    ("ab#cd", "ab"),
    ("ab\\#cd", "ab\\"),
    ("'ab#cd'", "ab#cd"),
    ('"ab#cd"', "ab#cd"),
    ("ab;cd", "ab;cd"),
    ("'a'b", "'a'b"),
    ("'", "'"),
    ("''", ""),
    ("", ""),
    ("'  kept  '", "  kept  "),
    (r"\s\sx\s", "  x "),
    (r"a\tb\nc\rd\be", "a\tb\nc\rd\be"),
    (r"a\\b\"c\'d", "a\\b\"c'd"),
    (r"a\qb\0c", r"a\qb\0c"),
    ("ends\\", "ends\\"),
    (r"'it\'s'", "it's"),
    (r"'it\'s' # so", "it's"),
    ("päss", "päss"),
]
