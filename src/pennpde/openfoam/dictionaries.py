"""OpenFOAM's dictionaries: a small parser that evaluates nothing, and the way back to text.

It exists because PyVista's reader gives neither boundary conditions nor face fluxes, and because the
libraries that parse all of the format are under the GPL.
"""

from __future__ import annotations

import gzip
import math
import re
import reprlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pennpde.files import read_regular

_SPACE = b" \t\r\n\f\v\0"
_BLANK = re.compile(rb"(?:[ \t\r\n\f\v\0]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(rb'"(.*?)(?<!\\)"', re.DOTALL)
_NUMERIC = "+-.0123456789"
_COMPONENTS = {"label": 1, "scalar": 1, "bool": 1, "sphericalTensor": 1, "vector": 3, "symmTensor": 6, "tensor": 9}
_WORDS = ("word", "string", "fileName", "keyType")
_DEEPEST = 64
_MOST_INCLUDES = 200
"""Files that one dictionary may include, directly or through others. Each adds to the time, and files that include
several others multiply."""
_MOST_BY_MACROS = 200_000
"""Items that all macros of a file may stand for: `b ($a $a); c ($b $b); ...` doubles with every line."""
_MOST_UNPACKED = 4 * 2**30
_SMALL, _MOST_RATIO = 64 * 2**20, 200
"""Beyond the first so many bytes, a packed file may unpack to so many times its size. Text of a mesh has 3 to 10."""
# Sets the type of patches such as `empty`, which the mesh says as well: nothing is lost by passing over it.
_HARMLESS_INCLUDE = "setConstraintTypes"
_UNITS: Mapping[str, tuple[int, int, int, int, int, int, int]] = {
    "kg": (1, 0, 0, 0, 0, 0, 0),
    "m": (0, 1, 0, 0, 0, 0, 0),
    "s": (0, 0, 1, 0, 0, 0, 0),
    "K": (0, 0, 0, 1, 0, 0, 0),
    "A": (0, 0, 0, 0, 0, 1, 0),
    "Cd": (0, 0, 0, 0, 0, 0, 1),
    "Hz": (0, 0, -1, 0, 0, 0, 0),
    "N": (1, 1, -2, 0, 0, 0, 0),
    "Pa": (1, -1, -2, 0, 0, 0, 0),
    "J": (1, 2, -2, 0, 0, 0, 0),
    "W": (1, 2, -3, 0, 0, 0, 0),
}


class FoamFormatError(ValueError):
    """A file is not what OpenFOAM would have written: truncated, damaged, or in a form that is refused here."""


class Quoted(str):
    """A string that stood in double quotes. As a keyword it is a regular expression."""

    __slots__ = ()


@dataclass(frozen=True)
class Dimensions:
    """Exponents of kilogram, metre, second, kelvin, mole, ampere and candela, or symbols such as `m^2 s^-1`."""

    exponents: tuple[float, ...]
    symbols: str = ""

    @property
    def powers(self) -> tuple[float, ...] | None:
        """The seven exponents, also of symbols; None where symbols are unknown or stand for multiples, such as `mm`."""
        if self.symbols:
            return powers_of(self.symbols)
        return (*self.exponents, *(0.0,) * (7 - len(self.exponents)))


def powers_of(symbols: str) -> tuple[float, ...] | None:
    """Exponents of kilogram, metre, second, kelvin, mole, ampere and candela; None where a symbol is not known.

    Such as `m^2 s^-1`, `kg*m/s^2` or `Pa s`; each `/` is for the unit that follows it.
    """
    powers = np.zeros(7)
    for divided, unit, power in re.findall(r"(/?)\s*([^\s*/^]+)(?:\^(\S*?(?=[\s*/]|$)))?", symbols):
        try:
            exponent = float(power or 1.0)
        except ValueError:
            return None
        if unit not in _UNITS:
            return None
        powers += (-exponent if divided else exponent) * np.array(_UNITS[unit])
    return tuple(powers.tolist())


@dataclass(frozen=True, eq=False)
class Uniform:
    """`uniform VALUE`: the same value, a number or a vector, in every cell or on every face."""

    value: float | np.ndarray


@dataclass(frozen=True, eq=False)
class NonUniform:
    """`nonuniform List<TYPE> ...`: one value for each cell or face, [number] or [number, components]."""

    values: np.ndarray


def parse_dictionary(content: str | bytes, source: str = "dictionary", root: Path | None = None) -> dict[str, Any]:
    """Read a dictionary.

    Sub-dictionaries become `dict`, `( ... )` lists, `[0 2 -1 0 0 0 0]` Dimensions, `uniform` and `nonuniform` values
    Uniform and NonUniform, several items of one entry a tuple; quoted keywords stay `Quoted`. `$name` is replaced by
    the entry of that name. `#include` is followed inside the folder `root` only; `#calc`, `#codeStream` and the like
    are refused, because they run code.
    """
    raw = content.encode() if isinstance(content, str) else content
    return Parser(raw, source, root).dictionary([], top=True)


def read_dictionary(path: Path | str, root: Path | str | None = None) -> dict[str, Any]:
    """Read one dictionary file, packed with gzip or not. `root` is the folder inside which `#include` is followed."""
    return parse_dictionary(content_of(Path(path)), str(path), None if root is None else Path(root))


def content_of(path: Path) -> bytes:
    """The bytes of a file of a case, unpacked where only `NAME.gz` is there."""
    packed = path.with_name(path.name + ".gz")
    if path.exists() and not path.is_file():
        raise FoamFormatError(f"{path} is not a regular file; an OpenFOAM case must have it as one.")
    try:
        if path.is_file() or not packed.is_file():
            return read_regular(path)
        return _unpacked(packed)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist; an OpenFOAM case must have it.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FoamFormatError(f"{packed} cannot be unpacked: {error}.") from error


def _unpacked(packed: Path) -> bytes:
    limit = min(_MOST_UNPACKED, max(_SMALL, _MOST_RATIO * packed.stat().st_size))
    with gzip.open(packed) as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise FoamFormatError(
            f"{packed} unpacks to more than {limit / 2**20:.0f} MB, too much for a packed file of "
            f"{packed.stat().st_size} bytes. Unpack it with gunzip if it is meant."
        )
    return content


def shown(value: Any) -> str:
    """A value for an error message, however large it is."""
    return reprlib.repr(value)


def number_of(value: Any) -> float | None:
    """The number of an entry such as `nu [0 2 -1 0 0 0 0] 1e-3`, `nu nu [...] 1e-3` or `nu 1e-3`, if it has one."""
    last = value[-1] if isinstance(value, tuple) and value else value
    return float(last) if isinstance(last, int | float) and not isinstance(last, bool) else None


def is_on(switch: Any) -> bool:
    """Whether a switch such as `active` is on, as it is where it is left out."""
    return switch is None or str(switch).lower() not in ("no", "false", "off", "n", "f", "none")


def fits(pattern: str, name: str) -> bool:
    """Whether a keyword in quotes, a regular expression, stands for a name."""
    # A repeated group that repeats inside, such as (a+)+, takes for ever on names that almost fit.
    if len(pattern) > 200 or re.search(r"\([^()]*[*+{][^()]*\)[*+{]", pattern) or pattern.count("(") > 10:
        raise FoamFormatError(f"The pattern {shown(pattern)} of names is refused: matching it might not terminate.")
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error as error:
        raise FoamFormatError(f"The pattern {shown(pattern)} of names cannot be read: {error}.") from None


# Parsing


@dataclass(frozen=True)
class _Mark:
    """One of the characters that structure a file."""

    character: str


@dataclass(frozen=True)
class _Layout:
    """How lists are stored, from `format` and `arch` of the header."""

    binary: bool = False
    label: str = "<i4"
    scalar: str = "<f8"

    @staticmethod
    def of(header: Mapping[str, Any]) -> _Layout:
        architecture = str(header.get("arch", ""))
        order = ">" if "MSB" in architecture else "<"
        label = 8 if "label=64" in architecture else 4
        scalar = 4 if "scalar=32" in architecture else 8
        binary = str(header.get("format", "ascii")) == "binary"
        return _Layout(binary, f"{order}i{label}", f"{order}f{scalar}")


class _Budget:
    """What one dictionary, with all files that it includes, may still cost."""

    def __init__(self) -> None:
        self.includes, self.by_macros = _MOST_INCLUDES, _MOST_BY_MACROS


class Parser:
    """One pass over the bytes of a file. Every step moves forward, so that no input can make it hang."""

    def __init__(self, content: bytes, source: str, root: Path | None = None, budget: _Budget | None = None) -> None:
        self.content, self.source, self.root = content, source, root
        self.budget = budget or _Budget()
        self.position = 0
        self.layout = _Layout()
        self.depth = 0

    @staticmethod
    def behind_header(path: Path) -> Parser:
        """A parser of a file that holds one bare list, standing right behind its header."""
        parser = Parser(content_of(path), str(path))
        if "FoamFile" not in parser.dictionary([], top=True):
            raise parser.error("the file does not begin with a FoamFile header.")
        return parser

    def error(self, message: str) -> FoamFormatError:
        line = self.content.count(b"\n", 0, min(self.position, len(self.content))) + 1
        return FoamFormatError(f"{self.source}, line {line}: {message}")

    # Tokens

    def peek(self) -> str:
        """The next character behind white space and comments, empty at the end of the file."""
        blank = _BLANK.match(self.content, self.position)
        assert blank is not None  # it may be empty
        self.position = blank.end()
        if self.content.startswith(b"/*", self.position):
            raise self.error("the comment that starts here never ends; the file is truncated or damaged.")
        return self.content[self.position : self.position + 1].decode("latin-1")

    def token(self) -> _Mark | Quoted | str | int | float | None:
        """The next number, word, quoted string or mark; None at the end of the file."""
        first = self.peek()
        if not first:
            return None
        if first in "{}()[];":
            self.position += 1
            return _Mark(first)
        if first == '"':
            return self._quoted()
        if self.content.startswith(b"#{", self.position):
            raise self.error(
                "a block of code '#{ ... #}' is refused. Give a table (uniformFixedValue), or a problem file."
            )
        text = self._word(numeric=first in _NUMERIC)
        # Python also reads 1_000 as a number, which is a word in OpenFOAM.
        if first not in _NUMERIC or "_" in text:
            return text
        try:
            number = float(text)
        except ValueError:
            return text
        if math.isinf(number):
            raise self.error(f"the number {shown(text)} is beyond all that can be computed with: not finite.")
        return int(text) if text.lstrip("+-").isdigit() else number

    def _word(self, numeric: bool) -> str:
        start, nesting, content = self.position, 0, self.content
        while self.position < len(content):
            character = content[self.position]
            if character in _SPACE or character in b'{}[];"':
                # ${name} is a macro in braces
                if character == ord("{") and content[start : self.position] == b"$":
                    end = content.find(b"}", self.position)
                    self.position = end if end > 0 else len(content)
                else:
                    break
            elif character == ord("("):
                if numeric or content[start : start + 1] == b"$":
                    break
                nesting += 1  # a keyword such as div(phi,U) is one word
            elif character == ord(")"):
                if nesting == 0:
                    break
                nesting -= 1
            elif character == ord("/") and content[self.position + 1 : self.position + 2] in (b"/", b"*"):
                break
            self.position += 1
        try:
            text = content[start : self.position].decode("utf-8")
        except UnicodeDecodeError:
            raise self.error("bytes that are no text; the file is damaged, or binary without saying so.") from None
        if nesting:
            raise self.error(f"the word {shown(text)} opens a parenthesis that it does not close.")
        return text

    def _quoted(self) -> Quoted:
        found = _STRING.match(self.content, self.position)
        if found is None:
            raise self.error("the string that starts here never ends; the file is truncated or damaged.")
        self.position = found.end()
        return Quoted(found[1].decode("utf-8", errors="replace"))

    def expect(self, character: str) -> None:
        found = self.token()
        if found != _Mark(character):
            what = found.character if isinstance(found, _Mark) else found
            raise self.error(f"expected {character!r}, found {'the end of the file' if what is None else shown(what)}.")

    def count(self, what: str) -> int:
        found = self.token()
        if not isinstance(found, int) or found < 0:
            what_came = "the end of the file" if found is None else shown(found)
            raise self.error(f"expected the number of {what}, found {what_came}.")
        return found

    # Structures

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.error(f"dictionaries and lists are nested more than {_DEEPEST} deep.")

    def dictionary(self, scopes: Sequence[Mapping[str, Any]], top: bool) -> dict[str, Any]:
        """Entries up to '}', or to the end of the file at the top, or to the bare list behind a header."""
        self._deeper()
        entries: dict[str, Any] = {}
        scopes = [*scopes, entries]
        while True:
            key = self.token()
            if key is None:
                if top:
                    break
                raise self.error("a dictionary is not closed with '}'; the file is truncated or damaged.")
            if isinstance(key, _Mark):
                if key.character == "}" and not top:
                    break
                if key.character == ";":
                    continue
                raise self.error(f"expected a keyword, found {key.character!r}.")
            if isinstance(key, Quoted) or not str(key).startswith(("#", "$")):
                self._entry_into(entries, key if isinstance(key, Quoted) else str(key), scopes)
            elif str(key).startswith("#"):
                entries.update(_merged(entries, self._directive(str(key), scopes)))
            else:
                included = self._macro(str(key), scopes)
                if not isinstance(included, Mapping):
                    raise self.error(f"{key} stands where a dictionary is expected, but it is {shown(included)}.")
                entries.update(_merged(entries, included))
            if top and len(entries) == 1 and isinstance(entries.get("FoamFile"), dict):
                self.layout = _Layout.of(entries["FoamFile"])
                if self.peek() in tuple("(0123456789"):
                    break
        self.depth -= 1
        return entries

    def _entry_into(self, entries: dict[str, Any], name: str, scopes: Sequence[Mapping[str, Any]]) -> None:
        if self.peek() == "{":
            self.position += 1
            value: Any = self.dictionary(scopes, top=False)
            old = entries.get(name)
            if isinstance(old, dict):
                value = _merged(old, value)
        else:
            value = self._entry(scopes)
        entries.pop(name, None)  # a later entry wins, also in the order that counts for regular expressions
        entries[name] = value

    def _directive(self, key: str, scopes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        name = self.token()
        # Functions only look at the fields, they do not change the flow.
        if key in ("#inputMode", "#includeFunc") or (key == "#includeEtc" and _HARMLESS_INCLUDE in str(name)):
            return {}
        if key not in ("#include", "#includeIfPresent", "#sinclude"):
            raise self.error(
                f"the directive {shown(key)} is refused, because it may run code or depends on the installation. "
                "Expand it first with `foamDictionary -expand`."
            )
        if not isinstance(name, str):
            raise self.error(f"{key} is not followed by the name of a file.")
        if self.root is None:
            raise self.error(f'{key} "{name}" cannot be followed outside of a case folder.')
        in_case = re.fullmatch(r"<(constant|system|case)>/(.*)", name)
        target = Path(self.source).parent / name
        if in_case:
            target = self.root / ("." if in_case[1] == "case" else in_case[1]) / in_case[2]
        target = target.resolve()
        if not target.is_relative_to(self.root.resolve()):
            raise self.error(f'{key} "{name}" leads out of the case {self.root}; copy the file into the case.')
        if not target.is_file():
            if key != "#include":
                return {}
            raise self.error(f'{key} "{name}": {target} does not exist.')
        self.budget.includes -= 1
        if self.budget.includes < 0:
            raise self.error(f"the file includes more than {_MOST_INCLUDES} others, directly or through them.")
        inner = Parser(target.read_bytes(), str(target), self.root, self.budget)
        inner.depth = self.depth + 8  # so a file that includes itself comes to an end
        included = inner.dictionary(scopes, top=True)
        return {name: value for name, value in included.items() if name != "FoamFile"}

    def _macro(self, key: str, scopes: Sequence[Mapping[str, Any]]) -> Any:
        name = key[1:].strip("{}")
        if name.startswith((":", "!", "/")):
            name, scopes = name[1:], scopes[:1]
        parts = re.split(r"[./]", name.lstrip("."))
        for scope in reversed(scopes):
            value: Any = scope
            for part in parts:
                found = _looked_up(value, part)
                if found is None:
                    break
                value = found
            else:
                self.budget.by_macros -= _size(value, self.budget.by_macros)
                if self.budget.by_macros < 0:
                    raise self.error(f"macros stand for more than {_MOST_BY_MACROS} items.")
                return value
        raise self.error(f"the macro {shown(key)} names nothing that is defined before it.")

    def _entry(self, scopes: Sequence[Mapping[str, Any]]) -> Any:
        """The items up to ';': a single one as it is, several as a tuple."""
        items: list[Any] = []
        while (first := self.peek()) != ";":
            if first in ("", "}"):
                raise self.error("an entry does not end with ';'; the file is truncated or damaged.")
            item = self._item(scopes)
            if isinstance(item, str) and item == "nonuniform" and not isinstance(item, Quoted):
                item = self._nonuniform()
            items.append(item)
        self.position += 1
        if len(items) == 2 and isinstance(items[0], str) and items[0] == "uniform":
            return self._uniform(items[1])
        return items[0] if len(items) == 1 else tuple(items)

    def _uniform(self, item: Any) -> Uniform:
        if isinstance(item, Uniform):
            return item
        if isinstance(item, int | float):
            return Uniform(float(item))
        if isinstance(item, list) and item and all(isinstance(number, int | float) for number in item):
            return Uniform(np.array(item, float))
        raise self.error(f"'uniform' must be followed by a number or a vector, found {shown(item)}.")

    def _item(self, scopes: Sequence[Mapping[str, Any]]) -> Any:
        found = self.token()
        if found is None:
            raise self.error("the file ends in the middle of an entry; it is truncated or damaged.")
        if isinstance(found, _Mark):
            if found.character == "(":
                return self._list(scopes)
            if found.character == "[":
                return self._dimensions()
            raise self.error(f"unexpected {found.character!r}.")
        if isinstance(found, str) and not isinstance(found, Quoted):
            if found.startswith("$"):
                return self._macro(found, scopes)
            if found.startswith("#"):
                raise self.error(f"the directive {shown(found)} is refused, because it may run code.")
            if found.startswith("List<") and found.endswith(">"):
                kind = found[5:-1]
                if kind in _WORDS:
                    self.count(f"items of a {found}")
                    return self._item(scopes)
                return self.values(kind)
        return found

    def _dimensions(self) -> Dimensions:
        end = self.content.find(b"]", self.position, self.position + 200)
        if end < 0:
            raise self.error("dimensions are not closed with ']'; the file is truncated or damaged.")
        text = self.content[self.position : end].decode("utf-8", errors="replace").strip()
        self.position = end + 1
        try:
            return Dimensions(tuple(float(exponent) for exponent in text.split()))
        except ValueError:
            return Dimensions((), text)

    def _list(self, scopes: Sequence[Mapping[str, Any]]) -> list[Any]:
        self._deeper()
        items: list[Any] = []
        while (first := self.peek()) != ")":
            if not first:
                raise self.error("a list is not closed with ')'; the file is truncated or damaged.")
            if first == "{":
                self.position += 1
                items.append(self.dictionary(scopes, top=False))
            else:
                items.append(self._item(scopes))
        self.position += 1
        self.depth -= 1
        return items

    def _nonuniform(self) -> NonUniform:
        if self.peek() == "0":  # `nonuniform 0()`: an empty list of whatever type
            self._empty_list(self.count("values"))
            return NonUniform(np.zeros(0))
        kind = self.token()
        if not (isinstance(kind, str) and kind.startswith("List<") and kind.endswith(">")):
            raise self.error(f"expected List<TYPE> after 'nonuniform', found {shown(kind)}.")
        return NonUniform(self.values(kind[5:-1]))

    def _empty_list(self, count: int) -> None:
        if count:
            raise self.error(f"a list of {count} values does not say their type.")
        if self.peek() == "(":
            self.position += 1
            self.expect(")")

    def values(self, kind: str) -> np.ndarray:
        """`N ( ... )`, binary or text, or `N {value}`, of scalars, vectors, labels, ...: [N] or [N, components]."""
        if kind not in _COMPONENTS:
            raise self.error(f"lists of {shown(kind)} are not read here; known are {', '.join(sorted(_COMPONENTS))}.")
        components = _COMPONENTS[kind]
        count = self.count(f"values of a List<{kind}>")
        dtype = np.int64 if kind in ("label", "bool") else np.float64
        shape = (count,) if components == 1 else (count, components)
        if count == 0:
            self._empty_list(count)
            return np.zeros(shape, dtype)
        opening = self.peek()
        if opening == "{":
            return self._repeated(kind, shape, dtype)
        if opening != "(":
            raise self.error(f"expected '(' behind the length {count} of a List<{kind}>.")
        self.position += 1
        numbers = self._binary(kind, count * components) if self.layout.binary else self._text(kind, components)
        if numbers.size != count * components:
            raise self.error(
                f"a List<{kind}> of {count} values needs {count * components} numbers, but holds {numbers.size}; "
                "the file is truncated or damaged."
            )
        return numbers.astype(dtype).reshape(shape)

    def _repeated(self, kind: str, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        if shape[0] > 10**8:
            raise self.error(f"a List<{kind}> of {shape[0]} values is more than memory holds.")
        self.position += 1
        value = self._item([])
        self.expect("}")
        try:
            return np.broadcast_to(np.asarray(value, dtype), shape).copy()
        except (ValueError, TypeError):
            raise self.error(f"{shown(value)} is not the value of a List<{kind}>.") from None

    def _binary(self, kind: str, count: int) -> np.ndarray:
        stored = np.dtype({"label": self.layout.label, "bool": "u1"}.get(kind, self.layout.scalar))
        end = self.position + count * stored.itemsize
        if self.content[end : end + 1] != b")":
            raise self.error(
                f"a binary List<{kind}> of {count} numbers of {stored.itemsize} bytes does not end with ')'; the "
                "file is truncated or damaged."
            )
        raw = self.content[self.position : end]
        self.position = end + 1
        return np.frombuffer(raw, stored)

    def _text(self, kind: str, components: int) -> np.ndarray:
        closing = (re.compile(rb"()\)") if components == 1 else re.compile(rb"(\))\s*\)")).search(
            self.content, self.position
        )
        if closing is None:
            raise self.error(f"a List<{kind}> is not closed with ')'; the file is truncated or damaged.")
        numbers = self.numbers(self.content[self.position : closing.end(1)], kind)
        self.position = closing.end()
        return numbers

    def numbers(self, text: bytes, kind: str) -> np.ndarray:
        """All numbers of a text, whatever parentheses and comments stand between them."""
        if b"/" in text:
            text = re.sub(rb"/\*.*?\*/|//[^\n]*", b" ", text, flags=re.DOTALL)
        words = text.translate(bytes.maketrans(b"()", b"  ")).split()
        try:
            return np.array(words, np.bytes_).astype(np.int64 if kind == "label" else np.float64)
        except (ValueError, OverflowError):
            raise self.error(f"a List<{kind}> holds something that is not a number.") from None


def _looked_up(entries: Any, name: str) -> Any:
    """The entry of a name, or else of the last regular expression that fits it, as in OpenFOAM."""
    if not isinstance(entries, Mapping):
        return None
    if name in entries:
        return entries[name]
    patterns = [key for key in entries if isinstance(key, Quoted)]
    return next((entries[key] for key in reversed(patterns) if fits(key, name)), None)


def _size(value: Any, most: int) -> int:
    """The number of items in a value; any number above `most` where there are more."""
    found, waiting = 0, [value]
    while waiting and found <= most:
        item = waiting.pop()
        found += 1
        if isinstance(item, Mapping):
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
    return found


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Both dictionaries in a new one. Nothing is changed in place, because `$name` shares values."""
    merged = dict(old)
    for name, value in new.items():
        before = merged.pop(name, None)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[name] = _merged(before, value) if both else value
    return merged


# Writing


def format_dictionary(name: str, entries: Mapping[str, Any], kind: str = "dictionary") -> str:
    """The text of a dictionary file with its header. Strings are written as they are."""
    header = {"version": "2.0", "format": "ascii", "class": kind, "object": name}
    return (format_entry("FoamFile", header) + b"".join(format_entry(k, v) for k, v in entries.items())).decode()


def format_entry(name: str, value: Any, indent: str = "", binary: bool = False) -> bytes:
    """One entry, or a sub-dictionary with all of its entries."""
    keyword = f'"{name}"' if isinstance(name, Quoted) else name
    if isinstance(value, Mapping):
        inner = b"".join(format_entry(k, v, indent + "    ", binary) for k, v in value.items())
        return f"{indent}{keyword}\n{indent}{{\n".encode() + inner + f"{indent}}}\n".encode()
    return f"{indent}{keyword} ".encode() + format_value(value, binary) + b";\n"


def format_value(value: Any, binary: bool = False) -> bytes:
    """A value as it stands in an entry; lists of numbers in binary where the file is."""
    match value:
        case Uniform():
            return b"uniform " + format_value(value.value)
        case NonUniform():
            return b"nonuniform " + format_values(value.values, binary)
        case Dimensions():
            exponents = b" ".join(format_value(exponent) for exponent in value.exponents)
            return b"[" + (exponents or value.symbols.encode()) + b"]"
        case tuple():
            return b" ".join(format_value(item, binary) for item in value)
        case list() | np.ndarray():
            return b"(" + b" ".join(format_value(item, binary) for item in value) + b")"
        case bool():
            return b"true" if value else b"false"
        case float() | np.floating():
            return f"{float(value):.17g}".encode()
        case Quoted():
            return f'"{value}"'.encode()
        case _:
            return str(value).encode()


def format_values(values: np.ndarray, binary: bool) -> bytes:
    """`List<scalar> N (...)` or `List<vector> N (...)`."""
    kind = {1: "scalar", 3: "vector"}.get(1 if values.ndim == 1 else values.shape[1])
    if kind is None:
        raise ValueError(f"A field has 1 or 3 components; these values have shape {values.shape}.")
    head = f"List<{kind}>\n{len(values)}\n(".encode()
    if binary:
        # An empty list has no parentheses in binary.
        return head + np.ascontiguousarray(values, "<f8").tobytes() + b")" if len(values) else head[:-2]
    rows = np.atleast_2d(values.astype(float).T).T.tolist()
    texts = (" ".join(f"{number:.17g}" for number in row) for row in rows)
    return head + "\n".join(texts if kind == "scalar" else (f"({text})" for text in texts)).encode() + b")"
