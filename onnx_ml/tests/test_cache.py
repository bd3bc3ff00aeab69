"""The cache of values derived from attributes."""

import weakref

import numpy as np

from tenonnx_onnx_ml.cache import SIZE, remembered


def test_the_most_recently_used_entries_are_kept():
    built = []
    double = remembered(lambda numbers: built.append(numbers[0]) or [2 * numbers[0]])
    lists = [[k] for k in range(SIZE + 1)]
    for each in lists[:SIZE]:
        assert double(each) is double(each)
    double(lists[0])
    double(lists[SIZE])
    assert built == list(range(SIZE + 1))
    double(lists[0])
    assert len(built) == SIZE + 1
    double(lists[1])
    assert built[SIZE + 1 :] == [1]


def test_derived_entries_are_dropped_with_their_source():
    array_of = remembered(lambda numbers, name: np.array(numbers))
    first, second, third = [1], [2], [3]
    results = [weakref.ref(array_of(each, "name")) for each in (first, second)]
    del first
    array_of(third, "name")
    assert results[0]() is None
    assert results[1]() is array_of(second, "name")
