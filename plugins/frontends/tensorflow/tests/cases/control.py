"""Loops, branches, variables, lists, strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from judging import Case, array

X = array(5, 3)
N = np.int32(4)
WORDS = np.asarray(["cat", "dog", "emu", "cat"], object)


def _while(x: Any, n: Any) -> Any:
    return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 0.5 + 1), [0, x])[1]


def _growing(x: Any, n: Any) -> Any:
    return tf.while_loop(
        lambda i, a: i < n,
        lambda i, a: (i + 1, tf.concat([a, x[:1]], 0)),
        [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 3])],
    )[1]


def _cond(x: Any, n: Any) -> Any:
    return tf.cond(n > 2, lambda: x * 2, lambda: x - 1)


def _nested(x: Any, n: Any) -> Any:
    return tf.cond(n > 2, lambda: tf.cond(n > 3, lambda: x, lambda: x + 1), lambda: _while(x, n))


def _collatz(x: Any, n: Any) -> Any:
    def step(count: Any, n: Any) -> Any:
        return count + 1, tf.cond(n % 2 == 0, lambda: n // 2, lambda: 3 * n + 1)

    count, _ = tf.while_loop(lambda count, n: n > 1, step, [0, n])
    return count + tf.cast(x[0, 0] * 0, tf.int32)


def _for_range(x: Any, n: Any) -> Any:
    total = tf.zeros_like(x)
    for i in tf.range(n):
        total += x * tf.cast(i, tf.float32)
    return total


def _for_rows(x: Any, n: Any) -> Any:
    total = tf.zeros([3])
    for row in x:
        total = total * 0.5 + row
    return total


def _break(x: Any, n: Any) -> Any:
    total = tf.constant(0.0)
    for row in x:
        if total > 1.0:
            break
        total += tf.reduce_sum(tf.abs(row))
    return total


def _array(x: Any, n: Any) -> Any:
    rows = tf.TensorArray(tf.float32, size=5)
    for i in tf.range(5):
        rows = rows.write(i, x[i] * 2)
    return rows.stack()


def _pushed(x: Any, n: Any) -> Any:
    rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    rows = rows.unstack(x)
    return rows.read(2) + rows.gather([0, 1])[1] + rows.concat()[0]


def _switch(x: Any, n: Any) -> Any:
    return tf.switch_case(n - 3, [lambda: x, lambda: x * 3, lambda: x - 5])


def _backwards(x: Any, n: Any) -> Any:
    rows, i = tf.TensorArray(tf.float32, size=tf.shape(x)[0]), tf.shape(x)[0] - 1
    total = tf.zeros([3])
    while i >= 0:
        total = total * 0.5 + x[i]
        rows = rows.write(i, total)
        i -= 1
    return rows.stack()


def _every_second(x: Any, n: Any) -> Any:
    rows = tf.TensorArray(tf.float32, size=tf.shape(x)[0])
    for i in tf.range(0, tf.shape(x)[0], 2):
        rows = rows.write(i, x[i])
    return rows.stack()


def _chosen(x: Any, n: Any) -> Any:
    rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for row in x:
        if tf.reduce_sum(row) > 0:
            rows = rows.write(rows.size(), row)
    return rows.stack()


def _previous(x: Any, n: Any) -> Any:
    rows = tf.TensorArray(tf.float32, size=tf.shape(x)[0] + 1, clear_after_read=False).write(0, tf.ones([3]))
    for i in tf.range(tf.shape(x)[0]):
        rows = rows.write(i + 1, rows.read(i) * 0.5 + x[i])
    return rows.stack()


def _written_in_two_loops(x: Any, n: Any) -> Any:
    rows = tf.TensorArray(tf.float32, size=15, element_shape=[])
    for i in tf.range(5):
        for j in tf.range(3):
            rows = rows.write(i * 3 + j, x[i, j])
    return rows.stack()


def _scattered(x: Any, n: Any) -> Any:
    return tf.TensorArray(tf.float32, size=6).scatter([5, 0, 3, 1, 2], x).stack()


def _grown(x: Any, n: Any) -> Any:
    rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in tf.range(tf.shape(x)[0]):
        rows = rows.write(i, x[i] * 2)
    return rows.stack(), rows.size()


def _reported(x: Any, n: Any) -> Any:
    tf.print("the first is", x[0], "of", n, output_stream="file:///dev/null")
    tf.debugging.assert_less(x, 100.0, message="too large")
    return x * 2


def _slope(x: Any, n: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.tanh(x) * tf.sigmoid(x) / (1 + x * x))
    return tape.gradient(y, x)


def _slope_of_loop(x: Any, n: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in tf.range(n):
            y = tf.sin(y) * x
    return tape.gradient(y, x)


_FUNCTIONS = {
    "grown": _grown,
    "reported": _reported,
    "slope": _slope,
    "slope_of_loop": _slope_of_loop,
    "backwards": _backwards,
    "every_second": _every_second,
    "chosen": _chosen,
    "previous": _previous,
    "written_in_two_loops": _written_in_two_loops,
    "scattered": _scattered,
    "scan_backwards": lambda x, n: tf.scan(lambda a, r: a * 0.5 + r, x, reverse=True),
    "foldr": lambda x, n: tf.foldr(lambda a, r: a * 0.5 + r, x),
    "while_at_most": lambda x, n: tf.while_loop(
        lambda i, a: True, lambda i, a: (i + 1, a * 0.9), [0, x], maximum_iterations=4
    )[1],
    "while": _while,
    "growing": _growing,
    "cond": _cond,
    "nested": _nested,
    "collatz": _collatz,
    "for_range": _for_range,
    "for_rows": _for_rows,
    "break": _break,
    "array": _array,
    "pushed": _pushed,
    "switch_case": _switch,
    "case": lambda x, n: tf.case([(n < 2, lambda: x), (n < 5, lambda: x * 2)], default=lambda: -x),
    "map_fn": lambda x, n: tf.map_fn(lambda r: r * 2 + tf.reduce_sum(r), x),
    "scan": lambda x, n: tf.scan(lambda a, r: a * 0.5 + r, x),
    "foldl": lambda x, n: tf.foldl(lambda a, r: a * 0.5 + r, x),
    "vectorized_map": lambda x, n: tf.vectorized_map(lambda r: tf.reduce_sum(r) * r, x),
    "gradient": lambda x, n: tf.gradients(tf.reduce_sum(tf.tanh(x) ** 2), x)[0],
    "map_two": lambda x, n: tf.map_fn(
        lambda p: p[0] @ tf.transpose(p[1]), (x[:, None], x[:, None]), fn_output_signature=tf.float32
    ),
}


class _Counter(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(array(3, 2), name="w")
        self.count = tf.Variable(0.0, trainable=False, name="count")

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def __call__(self, x: Any) -> Any:
        self.count.assign_add(tf.reduce_sum(x))
        return x @ self.w + self.count


class _Sliced(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(array(6, 3), name="w")

    @tf.function(input_signature=[tf.TensorSpec([2, 3], tf.float32, name="x")])
    def __call__(self, x: Any) -> Any:
        self.w[1:6:3].assign(x)
        self.w[-1, :2].assign(x[0, :2])
        return self.w * 2


def _dense_table() -> Any:
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, -1, -9, -2)
    table.insert(np.int64([1, 2]), np.int64([5, 6]))
    return tf.function(table.lookup)


def _table(default: Any, values: Any) -> Any:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["cat", "dog"], values), default)
    return tf.function(lambda w: table.lookup(w))


_FIRST = {name: Case(lambda f=f: tf.function(f), [X, N]) for name, f in _FUNCTIONS.items()}
_SECOND = {
    f"{name}_of_any_length": Case(
        lambda f=_FUNCTIONS[name]: tf.function(lambda x: f(x, 4)), [tf.TensorSpec([None, 3], name="x")]
    )
    for name in (
        "while",
        "for_rows",
        "break",
        "map_fn",
        "scan",
        "foldl",
        "vectorized_map",
        "backwards",
        "every_second",
        "chosen",
        "previous",
        "grown",
        "slope",
    )
}
_THIRD = {
    "module": Case(_Counter),
    "sliced": Case(_Sliced),
    "table_dense": Case(_dense_table, [np.int64([2, 1, 7])]),
    "table_of_numbers": Case(lambda: _table(-1, np.int64([5, 7])), [WORDS]),
    "table_of_floats": Case(lambda: _table(0.5, np.float32([1.5, 2.5])), [WORDS]),
    "table_of_text": Case(lambda: _table("none", np.asarray(["a", "b"])), [WORDS]),
    "table_of_integers": Case(
        lambda: tf.function(
            tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(np.int64([3, 9]), np.int64([30, 90])), -1
            ).lookup
        ),
        [np.int64([3, 4, 9])],
    ),
    "text_equal": Case(lambda: tf.function(lambda w: tf.equal(w, "cat")), [WORDS]),
    "text_lower": Case(
        lambda: tf.function(lambda w: (tf.strings.lower(w), tf.strings.upper(w))),
        [np.asarray(["CAT", "ÄÖÜ é", ""], object)],
    ),
    "text_lower_unicode": Case(
        lambda: tf.function(lambda w: tf.strings.lower(w, "utf-8")), [np.asarray(["CAT", "ÄÖÜ é", ""], object)]
    ),
    "text_join": Case(lambda: tf.function(lambda w: tf.strings.join([w, "x"], "-")), [WORDS], opsets=(21,)),
    "text_match": Case(lambda: tf.function(lambda w: tf.strings.regex_full_match(w, "c.*")), [WORDS], opsets=(21,)),
    "text_number": Case(lambda: tf.function(tf.strings.to_number), [np.asarray(["1.5", "-2"], object)]),
}

CASES = _FIRST | _SECOND | _THIRD
