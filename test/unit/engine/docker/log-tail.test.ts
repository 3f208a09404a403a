import { describe, expect, it } from 'vitest';
import { countLines, joinPieces } from '../../../../src/engine/docker/log-tail.ts';

function piece(output: 1 | 2, text: string): Buffer {
  const header = Buffer.alloc(8);
  header.writeUInt8(output);
  header.writeUInt32BE(Buffer.byteLength(text), 4);
  return Buffer.concat([header, Buffer.from(text)]);
}

describe('a log from an engine', () => {
  it('joins both outputs in their order', () => {
    const sent = Buffer.concat([
      piece(1, 'eins\n'),
      piece(2, ''),
      piece(2, 'zwö'),
      piece(1, 'lf\n'),
    ]);
    expect(joinPieces(sent).toString()).toBe('eins\nzwölf\n');
  });

  it('is read up to an incomplete end', () => {
    const sent = Buffer.concat([piece(1, 'whole\n'), piece(1, 'cut off\n')]);
    expect(joinPieces(sent.subarray(0, -4)).toString()).toBe('whole\ncut ');
    expect(joinPieces(sent.subarray(0, 17)).toString()).toBe('whole\n');
    expect(joinPieces(Buffer.alloc(0))).toHaveLength(0);
  });

  it('is counted by its line ends', () => {
    expect(countLines(Buffer.from('one\ntwo\n\nrest'))).toBe(3);
  });
});
