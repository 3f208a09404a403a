// Forms: parts over any cut of their bytes, and the bounds of each of their pieces.
import { expect, it } from 'vitest';
import { findBoundary, readField, readForm } from '../../../../src/api/body/multipart.ts';

const BOUNDARY = 'b0undary';

async function* cut(text: string, size: number): AsyncGenerator<Buffer> {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

const part = (head: string, content: string) =>
  `--${BOUNDARY}\r\nContent-Disposition: form-data; ${head}\r\n\r\n${content}\r\n`;
const END = `--${BOUNDARY}--\r\n`;

async function read(text: string, size = 1_000): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const each of readForm(cut(text, size), BOUNDARY)) {
    const { fileName, name } = each;
    const pieces: Buffer[] = [];
    if (fileName === undefined) pieces.push(Buffer.from(await readField(each)));
    else for await (const piece of each.content) pieces.push(Buffer.from(piece));
    found.push([name, fileName, Buffer.concat(pieces).toString()]);
  }
  return found;
}

it.each([1, 2, 3, 7, 16, 64, 1_000])('reads parts from pieces of %i bytes', async (size) => {
  const tricky = `a\r\n--${BOUNDARY.slice(0, -1)}\r\n--\r\r\n\n-`;
  const text = [
    part('name="purpose"', 'batch'),
    part('name="file"; filename="a\\"b.jsonl"', tricky),
    part('name="empty"', ''),
    END,
  ].join('');
  expect(await read(text, size)).toEqual([
    ['purpose', undefined, 'batch'],
    ['file', 'a"b.jsonl', tricky],
    ['empty', undefined, ''],
  ]);
});

const field = part('name="n"', 'v');

it.each([
  ['does not begin with its boundary', `${'x'.repeat(20_000)}${END}`],
  ['ends before its last boundary', field],
  ['ends before its last boundary', `${field}--${BOUNDARY}`],
  ['has bytes behind a boundary', `--${BOUNDARY}xx`],
  ['has bytes behind its last boundary', `${END}${'x'.repeat(20_000)}`],
  ['has a part without a name', `--${BOUNDARY}\r\nX: y\r\n\r\nv\r\n${END}`],
  ['has a part with more than 16384 bytes', `--${BOUNDARY}\r\n${'h'.repeat(20_000)}`],
  ['has more than 65536 bytes in the field', `${part('name="n"', 'v'.repeat(65_537))}${END}`],
  ['has more than 64 parts', `${field.repeat(65)}${END}`],
])('refuses a form that %s', async (fault, text) => {
  await expect(read(text)).rejects.toMatchObject({
    code: 'malformed',
    message: expect.stringContaining(fault),
  });
});

it.each([
  ['multipart/form-data; boundary=b0', 'b0'],
  ['multipart/form-data; charset=utf-8; boundary="b 0"', 'b 0'],
  [`multipart/form-data; boundary=${'b'.repeat(71)}`, undefined],
  ['multipart/form-data', undefined],
  ['application/json; boundary=b0', undefined],
  [undefined, undefined],
])('finds in %j the boundary %j', (type, boundary) => {
  expect(findBoundary(type)).toBe(boundary);
});
