"""What the module's text does at the width that the formatter keeps."""

import pytest

from shardc.emit.text.source import lay_out_return


@pytest.mark.parametrize(("width", "lines"), [(87, 1), (88, 1), (89, 4)])
def test_a_return_is_split_where_the_formatter_splits_it(width, lines):
    names = ("A" * 30, "B" * (width - len("    return , ") - 30))
    found = lay_out_return(names)
    assert len(found) == lines and "".join(line.strip() for line in found).count("A") == 30
    assert max(map(len, found)) <= 88 and (lines > 1 or len(found[0]) == width)
