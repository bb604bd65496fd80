"""Programs made smaller by cuts in their syntax trees. A failure means that `bisect --reduce` stops at a program that
is larger than necessary, runs programs that cannot work, or takes too long."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Sequence

import pytest

from vmapdbg.bisect.smaller import list_smaller, normalize, shrink

PROGRAM = """
import os
from tinygrad import Tensor, nn  # a comment

def make(size):
    \"\"\"Text.\"\"\"
    return Tensor.rand(size, 64)

class Model:
    def __call__(self, x):
        return x.relu().sum()

model = Model()
for step in range(10):
    x = make(128)
    y = x.pad(((1, 1), (0, 0)), value=2.0).softmax(1)
    with open("log") as file:
        z = (y * 3 + model(x)).max()
print(z.item())
"""


def smallest(source: str, shows: Callable[[str], bool], width: int = 1) -> str:
    """Returns the end of a search that has the time that it needs."""
    found = list(shrink(normalize(source), lambda sources: list(map(shows, sources)), width, 1000))
    assert all(map(shows, found))
    return found[-1]


def cuts(source: str) -> list[str]:
    return [text for _, text in list_smaller(normalize(source))]


def test_comments_go_and_the_rest_stays() -> None:
    assert ast.dump(ast.parse(normalize(PROGRAM))) == ast.dump(ast.parse(PROGRAM))
    assert "#" not in normalize(PROGRAM)


@pytest.mark.parametrize("width", [1, 4])
def test_what_shows_the_fault_is_all_that_is_left(width: int) -> None:
    assert smallest(PROGRAM, lambda text: ".softmax(" in text and "pad" in text, width) == "1 .pad().softmax()\n"
    assert smallest(PROGRAM, lambda text: "Tensor.rand(" in text, width).splitlines() == [
        "from tinygrad import Tensor",
        "",
        "def make(size):",
        "    return Tensor.rand()",
    ]


def test_a_statement_goes_with_what_reads_its_names() -> None:
    """Else each trial would end with a NameError."""
    source = "a = f()\nb = a + 1\nfor c in b:\n    print(c)\nif a:\n    d = 1\nelse:\n    d = 2\ne = 5\n"
    assert "e = 5\n" in cuts(f"def f():\n    return 1\n{source}")
    bound = [{node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)} for text in cuts(source)]
    # f has no definition anywhere, print is Python's
    assert all("f" in names or "a" not in names for names in bound)


def test_imports_that_nothing_reads_go_at_once() -> None:
    assert "x = os.sep\n" not in cuts("import os\nimport sys\nx = os.sep\ny = sys.path\n")
    assert "import os\nx = os.sep\n" in cuts("import os\nimport sys\nx = os.sep\ny = sys.path\n")
    # what a star brings is not known
    assert "from m import *\ny = x\n" in cuts("from m import *\nz = 1\ny = x\n")


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("y = x.f(1).g(2)\n", ["y = x.g(2)\n", "y = x.f(1)\n", "y = x.f().g(2)\n"]),
        ("y = a * b + c\n", ["y = a * b\n", "y = c\n", "y = a + c\n"]),
        ("f(a, b, c=1)\n", ["f(a, c=1)\n", "f(a, b)\n"]),
        ("f([a, [b, c]])\n", ["f([a])\n", "f([b, c])\n", "f([a, [b]])\n"]),
        ("f(16)\n", ["f(1)\n", "f(2)\n", "f(8)\n", "f(12)\n"]),
        ("f(5)\n", ["f(4)\n"]),
        ("f(16, g(16))\n", ["f(8, g(8))\n", "f(8, g(16))\n"]),
        ("f(x[1:2])\n", ["f(x)\n", "f(x[:2])\n"]),
        ("for i in f():\n    g()\n", ["g()\n"]),
        ("with f() as g:\n    h()\n", ["h()\n", "with f():\n    h()\n"]),
        ("@f\ndef g():\n    h()\n", ["def g():\n    h()\n", "h()\n"]),
        ("a = b\nf(a)\n", ["a = b\nf(b)\n"]),
        ("class A:\n    def f(self):\n        return self\n", ["class A:\n    pass\n"]),
        ("x = f(y)\n", ["f(y)\n"]),
        ("f(not a if b else c)\n", ["f(not a)\n", "f(b)\n", "f(c)\n"]),
    ],
)
def test_each_kind_of_cut(source: str, made: list[str]) -> None:
    tried = cuts(source)
    assert [one for one in made if one not in tried and normalize(one) not in tried] == []
    assert normalize(source) not in tried


def test_a_list_keeps_an_element() -> None:
    assert all("[]" not in text for text in cuts("f([1, 2], [a])\n"))


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("x = np.random.default_rng(1).standard_normal(4)\n", {"np.random.standard_normal(4)", "default_rng()"}),
        ("Tensor.manual_seed(1)\nx = Tensor.rand(4)\n", {"x = Tensor.rand(4)\n"}),
        ("np.random.seed(1)\nx = np.random.rand(4)\n", {"x = np.random.rand(4)\n"}),
    ],
)
def test_random_numbers_stay_the_same_in_each_run(source: str, refused: set[str]) -> None:
    made = [text for _, text in list_smaller(normalize(f"import numpy as np\n{source}"))]
    assert made
    for part in refused:
        assert not [text for text in made if part in text and "seed(1)" not in text]


def test_a_number_does_not_become_zero_or_negative() -> None:
    assert all("0" not in text and "-" not in text for text in cuts("f(5, 7)\n"))


def test_the_biggest_cut_comes_first() -> None:
    """Only then a long program becomes short in few trials."""
    gains = [gain for gain, _ in list_smaller(normalize(PROGRAM))]
    assert gains == sorted(gains, reverse=True)
    long = "\n".join(f"x{i} = f({i})" for i in range(96)) + "\n"
    tried: list[str] = []

    def ask(sources: Sequence[str]) -> list[bool]:
        tried.extend(sources)
        return ["x77 " in text for text in sources]

    *_, small = shrink(long, ask, 1, 1000)
    assert small == "x77 = 1\n"
    assert len(tried) < 60


def test_no_program_is_run_twice_and_none_that_python_refuses() -> None:
    tried: list[str] = []

    def ask(sources: Sequence[str]) -> list[bool]:
        tried.extend(sources)
        return [False] * len(sources)

    assert list(shrink(normalize(PROGRAM), ask, 3, 1000)) == []
    assert len(tried) == len(set(tried))
    for text in tried:
        compile(text, "smaller", "exec")
    # Python warns of these
    assert [text for text in cuts("y = f(1)[2]\n") if "1[" in text] == []


def test_the_search_ends_when_its_time_is_over() -> None:
    def ask(sources: Sequence[str]) -> list[bool]:
        time.sleep(0.02)
        return [False] * len(sources)

    began = time.monotonic()
    assert list(shrink(normalize(PROGRAM), ask, 1, 0.1)) == []
    assert time.monotonic() - began < 2
