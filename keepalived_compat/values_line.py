"""One line of a value block, read word by word: options, their values, and complaints in one voice."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import did_you_mean
from keepalived_compat.source import Word

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

INET, INET6 = 4, 6
FAMILIES = {"inet": INET, "inet6": INET6}
_DIGITS = 10
_LONGEST_INTERFACE = 15
"""IFNAMSIZ without its NUL."""


class Dropped(Exception):
    """The line cannot be used; the complaint has been filed."""


class LineReader:
    """Takes the words of a line one after the other. A value that cannot be used drops the line, as in keepalived."""

    def __init__(self, words: list[Word], complaints: Complaints, *, block: str, loss: str) -> None:
        self._words = words
        self._next = 0
        self.complaints = complaints
        self.block = block
        self.loss = loss
        """What a bad value means: `the address is not used`."""

    def word(self) -> Word | None:
        """The next word, None at the end."""
        if self._next >= len(self._words):
            return None
        self._next += 1
        return self._words[self._next - 1]

    def peek(self) -> str:
        """The text of the next word without taking it, empty at the end."""
        return self._words[self._next].text if self._next < len(self._words) else ""

    def accept(self, *texts: str) -> Word | None:
        """The next word when it is one of these."""
        return self.word() if self.peek() in texts and self.peek() else None

    def value(self, option: Word) -> Word:
        """The word after an option. Raises Dropped when there is none."""
        found = self.word()
        if found is None:
            self.complaints.error(
                "missing-argument", option, f"{self.block}: `{option.text}` lacks its value; {self.loss}"
            )
            raise Dropped
        return found

    def drop(self, where: Word, why: str, hint: str = "") -> Dropped:
        """File that the line is not used; to be raised."""
        self.complaints.error("bad-value", where, f"{self.block}: {why}; {self.loss}", hint)
        return Dropped()

    def number(self, option: Word, low: int, high: int) -> int:
        """A whole number in a range; 0x and 0 prefixes count, as ip(8) has it."""
        found = self.value(option)
        number = whole_number(found.text)
        if number is None or not low <= number <= high:
            raise self.drop(
                found, f"`{option.text} {found.text}` is not a number in range", f"{low} to {high}, without a unit"
            )
        return number

    def address(self, found: Word, family: int = 0) -> Address:
        """An address, of a family where one is given."""
        try:
            address = ip_address(found.text)
        except ValueError:
            raise self.drop(found, f"`{found.text}` is not an IP address") from None
        if family and address.version != family:
            raise self.drop(found, f"`{found.text}` is not an IPv{family} address", "one family a line")
        return address

    def network(self, found: Word, family: int = 0) -> Network:
        """A prefix, or an address as one of full length."""
        try:
            network = ip_network(found.text, strict=False)
        except ValueError:
            raise self.drop(found, f"`{found.text}` is not an address or prefix", "write ADDRESS/LENGTH") from None
        if family and network.version != family:
            raise self.drop(found, f"`{found.text}` is not an IPv{family} prefix", "one family a line")
        return network

    def interface(self, option: Word) -> str:
        """The name of an interface."""
        found = self.value(option)
        if len(found.text.encode()) > _LONGEST_INTERFACE:
            raise self.drop(found, f"`{found.text}` is no interface: it has more than {_LONGEST_INTERFACE} characters")
        return found.text

    def unknown(self, word: Word, known: Iterable[str]) -> Dropped:
        """File that a word is not known; to be raised."""
        self.complaints.error(
            "unknown-keyword",
            word,
            f"{self.block}: unknown word `{word.text}`; {self.loss}",
            did_you_mean(word.text, known),
        )
        return Dropped()


def whole_number(text: str) -> int | None:
    """Decimal, 0x… or 0…, None when it is none."""
    digits = text.removeprefix("-")
    base = 16 if digits[:2].lower() == "0x" else 8 if digits[:1] == "0" and digits != "0" else _DIGITS
    try:
        return int(text, base) if text.isascii() and "_" not in text and " " not in text else None
    except ValueError:
        return None


def name_list(lines: Iterable[list[Word]]) -> tuple[Word, ...]:
    """Every word of a block of names (`group`, `interfaces`, `notification_email`): several may stand on a line."""
    return tuple(word for line in lines for word in line)
