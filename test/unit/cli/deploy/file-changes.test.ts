// The differences between two versions: files, and the lines of small text files.
import { describe, expect, it } from 'vitest';
import { findChanges, formatTextChange } from '../../../../src/cli/deploy/diff.ts';
import { describeUpload } from '../../../../src/cli/deploy/rollout.ts';
import { formatSize, StatusLine } from '../../../../src/cli/output.ts';

const file = (path: string, sha256 = 'a', isExecutable = false) => ({
  ...{ path, bytes: sha256.length, sha256, isExecutable },
});

it('names added, removed and changed files, and changed modes', () => {
  const before = [file('same'), file('old'), file('text', 'a'), file('run.sh')];
  const after = [file('new'), file('run.sh', 'a', true), file('same'), file('text', 'bb')];
  expect(findChanges(before, after)).toEqual([
    { path: 'new', kind: 'added', bytesBefore: 0, bytesAfter: 1 },
    { path: 'old', kind: 'removed', bytesBefore: 1, bytesAfter: 0 },
    { path: 'run.sh', kind: 'mode', bytesBefore: 1, bytesAfter: 1 },
    { path: 'text', kind: 'changed', bytesBefore: 1, bytesAfter: 2 },
  ]);
  expect(findChanges(before, before)).toEqual([]);
});

describe('formatTextChange', () => {
  const change = (before: string, after: string) =>
    formatTextChange('a.ts', Buffer.from(before), Buffer.from(after));

  it('shows changed lines with three lines around them', () => {
    const lines = Array.from({ length: 30 }, (_, at) => `line ${at}`);
    const changed = lines.with(10, 'new').toSpliced(25, 1).join('\n');
    expect(change(lines.join('\n'), changed)?.split('\n')).toEqual([
      ...['--- a.ts', '+++ a.ts', '@@', ' line 7', ' line 8', ' line 9', '-line 10', '+new'],
      ...[' line 11', ' line 12', ' line 13', '@@', ' line 22', ' line 23', ' line 24'],
      ...['-line 25', ' line 26', ' line 27', ' line 28'],
    ]);
  });

  it('shows nothing of binary or long files', () => {
    expect(change('a\0', 'b')).toBeUndefined();
    expect(formatTextChange('a', Buffer.from([0xff]), Buffer.from('b'))).toBeUndefined();
    expect(change('a\n'.repeat(1_500), 'b\n'.repeat(1_500))).toBeUndefined();
  });
});

it.each([
  [0, '0 bytes'],
  [1, '1 byte'],
  [1_023, '1023 bytes'],
  [18_842, '18.4 KB'],
  [52_428_800, '50.0 MB'],
  [5_368_709_120, '5120.0 MB'],
])('formats a size of %i as %s', (bytes, shown) => {
  expect(formatSize(bytes)).toBe(shown);
});

describe('StatusLine', () => {
  function record(isTTY: boolean) {
    const written: string[] = [];
    const stream = { isTTY, columns: 20, write: (text: string) => written.push(text) };
    return { line: new StatusLine(stream), written };
  }

  it('rewrites one line of a terminal, cut to its width, and removes it', () => {
    const { line, written } = record(true);
    line.show('one');
    line.show('one');
    line.show('a text that is too long');
    line.clear();
    line.clear();
    expect(written).toEqual([
      ...['\r\u001b[2Kone', '\r\u001b[2Ka text that is too ', '\r\u001b[2K'],
    ]);
  });

  it('prints each change elsewhere, without control characters', () => {
    const { line, written } = record(false);
    line.show('one');
    line.show('one');
    line.show('two\u001b[2J');
    line.clear();
    expect(written).toEqual(['one\n', 'two\\u001b[2J\n']);
  });
});

describe('an upload', () => {
  it.each([
    [0, 'uploading 0 bytes of 3.0 MB (0 %)'],
    [1_048_576, 'uploading 1.0 MB of 3.0 MB (33 %)'],
    [3_145_727, 'uploading 3.0 MB of 3.0 MB (99 %)'],
    [3_145_728, 'uploaded 3.0 MB, the platform checks the archive'],
  ])('shows, after %i bytes of 3 MB: %s', (sent, shown) => {
    expect(describeUpload(sent, 3_145_728)).toBe(shown);
  });
});
