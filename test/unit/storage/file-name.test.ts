// File names of downloads: safe on every file system, whatever a server or a URL says.
import { expect, it } from 'vitest';
import { chooseFileName } from '../../../src/storage/download.ts';

it.each([
  ['https://a.example/cats/tom.png', undefined, undefined, 'tom.png'],
  ['https://a.example/cats/tom%20cat.PNG?x=1', undefined, undefined, 'tom_cat.PNG'],
  ['https://a.example/', undefined, undefined, 'file'],
  ['https://a.example/', undefined, 'image/jpeg; q=1', 'file.jpg'],
  ['https://a.example/model', undefined, 'constructor', 'model'],
  ['https://a.example/x', 'attachment; filename="tom.webp"', undefined, 'tom.webp'],
  ['https://a.example/x', 'attachment; filename=tom.webp; size=3', undefined, 'tom.webp'],
  [
    'https://a.example/x',
    "attachment; filename=a.png; filename*=UTF-8''t%C3%B6m.png",
    undefined,
    't_m.png',
  ],
  ['https://a.example/x', 'attachment; filename="../../etc/passwd"', undefined, 'passwd'],
  ['https://a.example/x', 'attachment; filename="C:\\\\temp\\\\a.txt"', undefined, 'a.txt'],
  ['https://a.example/%2e%2e%2f%2e%2e%2f.ssh%2fid', undefined, undefined, 'id'],
  ['https://a.example/..%2f.bashrc', undefined, undefined, 'bashrc'],
  ['https://a.example/-rf', undefined, undefined, 'rf'],
  ['https://a.example/a%00b.png', undefined, undefined, 'a_b.png'],
  ['https://a.example/%E0%A4%A', undefined, undefined, 'E0_A4_A'],
  ['https://a.example/x', 'attachment; filename="..."', undefined, 'x'],
])('%s, %j, %j: %s', (url, contentDisposition, contentType, expected) => {
  expect(chooseFileName({ url: new URL(url), contentDisposition, contentType })).toBe(expected);
});

it('has at most 100 characters, and keeps the extension', () => {
  const name = `${'a'.repeat(300)}.safetensors`;
  const contentDisposition = `attachment; filename="${name}"`;
  const url = new URL('https://a.example/');
  const chosen = chooseFileName({ url, contentDisposition, contentType: undefined });
  expect(chosen).toHaveLength(100);
  expect(chosen.endsWith('a.safetensors')).toBe(true);
});
