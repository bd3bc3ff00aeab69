// Arrays for inputs of models: an image as numbers, and archives in the format of numpy.

export async function pixels(file, input) {
  const { height, width } = input.image;
  const picture = await createImageBitmap(file);
  const size = (axis, else_) => (typeof input.shape[axis] === "number" ? input.shape[axis] : else_);
  const [rows, columns] = [size(height, picture.height), size(width, picture.width)];
  const canvas = new OffscreenCanvas(columns, rows);
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0, columns, rows);
  const { data } = context.getImageData(0, 0, columns, rows);
  const first = height === 2; // channels before rows
  const channels = size(first ? 1 : 3, 3);
  const bytes = input.dtype === "uint8";
  const out = bytes ? new Uint8Array(rows * columns * channels) : new Float32Array(rows * columns * channels);
  for (let p = 0; p < rows * columns; p++) {
    const [r, g, b, a] = data.subarray(4 * p, 4 * p + 4);
    const parts = channels === 1 ? [0.299 * r + 0.587 * g + 0.114 * b] : [r, g, b, a];
    for (let c = 0; c < channels; c++) out[first ? c * rows * columns + p : p * channels + c] = bytes ? parts[c] : parts[c] / 255;
  }
  return { shape: first ? [1, channels, rows, columns] : [1, rows, columns, channels], data: out };
}

// Arrays by name as a .npz: an archive without compression.
export function npz(arrays) {
  const parts = [], directory = [];
  let offset = 0, listed = 0;
  for (const [name, array] of arrays) {
    const file = new TextEncoder().encode(`${name}.npy`), contents = npy(array), check = crc(contents);
    const fields = (view, at) => {
      view.setUint16(at + 4, 0x0800, true); // names in UTF-8
      view.setUint32(at + 12, check, true);
      view.setUint32(at + 16, contents.length, true);
      view.setUint32(at + 20, contents.length, true);
      view.setUint16(at + 24, file.length, true);
    };
    const local = new DataView(new ArrayBuffer(30));
    local.setUint32(0, 0x04034b50, true);
    local.setUint16(4, 20, true);
    fields(local, 2);
    const entry = new DataView(new ArrayBuffer(46));
    entry.setUint32(0, 0x02014b50, true);
    entry.setUint16(4, 20, true);
    entry.setUint16(6, 20, true);
    fields(entry, 4);
    entry.setUint32(42, offset, true);
    parts.push(new Uint8Array(local.buffer), file, contents);
    directory.push(new Uint8Array(entry.buffer), file);
    offset += 30 + file.length + contents.length;
    listed += 46 + file.length;
  }
  const end = new DataView(new ArrayBuffer(22));
  end.setUint32(0, 0x06054b50, true);
  end.setUint16(8, arrays.size, true);
  end.setUint16(10, arrays.size, true);
  end.setUint32(12, listed, true);
  end.setUint32(16, offset, true);
  return new Blob([...parts, ...directory, new Uint8Array(end.buffer)]);
}

function npy({ shape, data }) {
  const type = data instanceof Uint8Array ? "|u1" : "<f4";
  let header = `{'descr': '${type}', 'fortran_order': False, 'shape': (${shape.join(", ")},), }`;
  header = header.padEnd(Math.ceil((header.length + 11) / 64) * 64 - 11) + "\n";
  const head = new Uint8Array(10 + header.length);
  head.set([0x93, 78, 85, 77, 80, 89, 1, 0, header.length & 255, header.length >> 8]);
  head.set(new TextEncoder().encode(header), 10);
  const whole = new Uint8Array(head.length + data.byteLength);
  whole.set(head);
  whole.set(new Uint8Array(data.buffer), head.length);
  return whole;
}

const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

function crc(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) sum = TABLE[(sum ^ byte) & 255] ^ (sum >>> 8);
  return (sum ^ 0xffffffff) >>> 0;
}
