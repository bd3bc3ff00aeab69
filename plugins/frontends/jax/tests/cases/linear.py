"""Linear algebra and Fourier transforms."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cases import BATCH, case, floats

square, tall = floats(4, 4) + 4 * np.eye(4, dtype=np.float32), floats(5, 3)
symmetric = square @ square.T
case("cholesky", jnp.linalg.cholesky, symmetric)
case("solve", jnp.linalg.solve, square, floats(4))
case("solve of several", jnp.linalg.solve, square, floats(4, 2))
case("inv", jnp.linalg.inv, square)
case("inv of a batch", jnp.linalg.inv, np.stack([square, square + 1, square.T]), dims=BATCH)
case("det", jnp.linalg.det, square)
case("slogdet", jnp.linalg.slogdet, square)
case("lu", jax.scipy.linalg.lu, floats(4, 4))
case("lu_factor", jax.scipy.linalg.lu_factor, floats(4, 4, seed=3))
case("qr", jnp.linalg.qr, tall)
case("qr of a square", lambda a: jnp.linalg.qr(a)[1], square)
case("svd values", lambda a: jnp.linalg.svd(a, compute_uv=False), tall)
case("svd together", lambda a: (lambda u, s, v: (u * s) @ v)(*jnp.linalg.svd(a, full_matrices=False)), tall)
case("pinv", jnp.linalg.pinv, tall)
case("eigvalsh", jnp.linalg.eigvalsh, symmetric)
case("eigh together", lambda a: (lambda w, v: (v * w) @ v.T)(*jnp.linalg.eigh(a)), symmetric)
case("matrix_power", lambda a: jnp.linalg.matrix_power(a, 3), square)
case("matrix_rank", jnp.linalg.matrix_rank, tall)
case("expm", lambda a: jax.scipy.linalg.expm(a / 10), square)
case("solve_triangular", lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True), square, floats(4, 2))
case("solve_triangular transposed", lambda a, b: jax.scipy.linalg.solve_triangular(a, b, trans=1), square, floats(4))
case("triangular_solve right", lambda a, b: lax.linalg.triangular_solve(a, b, lower=True), square, floats(2, 4))
case("cho_solve", lambda a, b: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a), b), symmetric, floats(4))
case("trace", jnp.trace, square)
case("norms", lambda a: (jnp.linalg.norm(a, 1), jnp.linalg.norm(a, jnp.inf), jnp.linalg.norm(a, "fro")), square)
case("gradient of solve", jax.grad(lambda a, b: jnp.linalg.solve(a, b).sum()), square, floats(4))
case("gradient of cholesky", jax.grad(lambda a: jnp.linalg.cholesky(a).sum()), symmetric)

signal = floats(3, 8)
case("fft", lambda a: jnp.abs(jnp.fft.fft(a)), signal, dims=BATCH)
case("fft of odd length", lambda a: jnp.real(jnp.fft.fft(a)), floats(3, 7), dims=BATCH)
case("ifft", lambda a: jnp.real(jnp.fft.ifft(jnp.fft.fft(a) * 2)), signal, dims=BATCH)
case("rfft", lambda a: jnp.imag(jnp.fft.rfft(a)), signal, dims=BATCH)
case("irfft", lambda a: jnp.fft.irfft(jnp.fft.rfft(a)), signal, dims=BATCH)
case("irfft odd", lambda a: jnp.fft.irfft(jnp.fft.rfft(a), 7), floats(3, 7), dims=BATCH)
case("fft2", lambda a: jnp.abs(jnp.fft.fft2(a)), floats(3, 4, 6), dims=BATCH)
case("rfft2", lambda a: jnp.abs(jnp.fft.rfft2(a)), floats(3, 4, 6), dims=BATCH)
case("irfft2", lambda a: jnp.fft.irfft2(jnp.fft.rfft2(a)), floats(3, 4, 6), dims=BATCH)
case("fftshift", lambda a: jnp.fft.fftshift(a, axes=1), signal, dims=BATCH)
case("fft along the first axis", lambda a: jnp.abs(jnp.fft.fft(a, axis=1)), floats(3, 4, 6), dims=BATCH)
