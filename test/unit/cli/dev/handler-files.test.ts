// Which files are handlers, and the endpoints named after them.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findHandlerFile, findHandlers } from '../../../../src/cli/dev/handler-files.ts';

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-handlers-'));
});

afterEach(() => rm(folder, { recursive: true }));

async function write(...names: string[]): Promise<string[]> {
  const paths = names.map((name) => join(folder, name));
  for (const path of paths) await writeFile(path, '');
  return paths;
}

describe('a folder', () => {
  it('contains the modules directly in it, sorted', async () => {
    await write('b.ts', 'a.mjs', 'c.js', 'd.mts');
    const found = findHandlers([folder]).map(({ path }) => basename(path));
    expect(found).toEqual(['a.mjs', 'b.ts', 'c.js', 'd.mts']);
  });

  it('contains no tests, declarations, configurations, hidden or other files, or subfolders', async () => {
    await write('a.test.ts', 'a.spec.js', 'a.d.ts', 'x.config.ts', '.b.ts', 'a.json', 'a.md');
    await mkdir(join(folder, 'lib'));
    await mkdir(join(folder, 'odd.ts'));
    await write('lib/c.ts');
    expect(findHandlers([folder])).toEqual([]);
  });
});

describe('handlers', () => {
  it('are endpoints named after their file', async () => {
    const [path = ''] = await write('text-stream.ts');
    expect(findHandlers([path])).toEqual([{ path, endpointId: 'text-stream' }]);
  });

  it('count once if they are named twice', async () => {
    const [path = ''] = await write('a.ts');
    expect(findHandlers([folder, path])).toHaveLength(1);
  });

  it('are refused if they have the same name; both are named', async () => {
    const [first = '', second = ''] = await write('a.js', 'a.ts');
    expect(() => findHandlers([folder])).toThrow(`${first} and ${second} are both named "a"`);
  });

  it('are refused if they are missing, or skipped if the option is set', () => {
    const path = join(folder, 'none.ts');
    expect(() => findHandlers([path])).toThrow('file or folder not found');
    expect(findHandlers([path], { missing: 'skipped' })).toEqual([]);
  });
});

describe('a command for one handler', () => {
  it('accepts the named file', async () => {
    const [path = ''] = await write('a.ts');
    expect(findHandlerFile([path])).toBe(path);
  });

  it('refuses anything else with the reason', async () => {
    const [path = ''] = await write('a.ts');
    expect(() => findHandlerFile([])).toThrow('<handler> is missing');
    expect(() => findHandlerFile([folder])).toThrow('is a folder');
    expect(() => findHandlerFile([`${path}x`])).toThrow('file not found');
    expect(() => findHandlerFile([path, 'b.ts'])).toThrow(
      'b.ts: unexpected argument; name one <handler>',
    );
  });
});
