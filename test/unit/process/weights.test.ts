// Weights that are read ahead: which files, within which bounds, and that a start never fails because of them.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { readWeights } from '../../../src/process/weights.ts';
import {
  recallWeights,
  rememberWeights,
  WEIGHTS_VARIABLE,
} from '../../../src/process/weights-note.ts';
import { MODEL, RecordedLog, startModel } from '../../support/models/model-stand.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';

function openFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-weights-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, 'model/parts'), { recursive: true });
  writeFileSync(join(folder, 'model/parts/1.bin'), Buffer.alloc(5_000_000));
  writeFileSync(join(folder, 'model/parts/2.bin'), Buffer.alloc(100));
  writeFileSync(join(folder, 'model/config.json'), '{}');
  symlinkSync('parts/2.bin', join(folder, 'model/link.safetensors'));
  return folder;
}

async function read(weights: string[], signal = new AbortController().signal) {
  const log = new RecordedLog();
  await readWeights({ weights, cwd: openFolder(), log, signal });
  return log.entries.map(({ fields, message }) => ({ ...fields, message }));
}

const done = (files: number, bytes: number, isWhole = true) => ({
  files,
  bytes,
  isWhole,
  readMs: expect.any(Number),
  message: 'weights read ahead',
});

describe('weights that are read ahead', () => {
  it.each([
    [['model/parts/1.bin'], 1, 5_000_000],
    [['model/parts/*.bin'], 2, 5_000_100],
    [['model'], 4, 5_000_202],
    [['model/*.safetensors', 'model/config.json'], 2, 102],
  ])('may be %j', async (weights, files, bytes) => {
    expect(await read(weights)).toEqual([done(files, bytes)]);
  });

  it('may be missing', async () => {
    expect(await read(['nothing/*.bin', 'model/config.json'])).toEqual([
      {
        path: 'nothing/*.bin',
        reason: 'no such file',
        message: 'weights could not be read ahead',
      },
      done(1, 2),
    ]);
  });

  it('end with the start of the model', async () => {
    expect(await read(['model'], AbortSignal.abort())).toEqual([done(0, 0, false)]);
  });

  it.skipIf(leaveOutWithoutPython('weights.test.ts'))('are read at each start', async () => {
    const { log } = await startModel({ weights: [MODEL] });
    await expect.poll(() => log.messages).toContain('weights read ahead');
  });

  it('use half of the free memory at most', async () => {
    const memory = vi.spyOn(process, 'availableMemory').mockReturnValue(6_000_000);
    onTestFinished(() => memory.mockRestore());
    const [end] = await read(['model/parts']);
    expect(end).toMatchObject({ files: 1, isWhole: false });
  });
});

describe('weights that are remembered', () => {
  const worker = (path: string, startedAt: number, isReading = false) => {
    const inherited = { [WEIGHTS_VARIABLE]: JSON.stringify({ path, startedAt, isReading }) };
    return (...weights: string[]) => rememberWeights(weights, { cwd: '/models', inherited });
  };
  const openNote = () => join(openFolder(), 'new/note.json');

  it('are those of all models of the last worker', () => {
    const path = openNote();
    expect(recallWeights(path)).toEqual([]);
    const first = worker(path, 1);
    first('a', '/shared/b');
    first('c/*.bin');
    expect(recallWeights(path)).toEqual(['/models/a', '/shared/b', '/models/c/*.bin']);
    worker(path, 2)('d');
    // One that has started earlier says no more what the next one will need.
    first('e');
    expect(recallWeights(path)).toEqual(['/models/d']);
  });

  it('are not read twice while the supervisor reads them', () => {
    const path = openNote();
    worker(path, 1)('a', 'b');
    const second = worker(path, 2, true);
    expect(second('a')).toEqual([]);
    expect(second('b', 'new')).toEqual(['/models/new']);
    expect(worker(path, 3)('a')).toEqual(['/models/a']);
  });

  it('are bounded, and a broken file is none', () => {
    const path = openNote();
    const many = Array.from({ length: 150 }, (_, n) => `${n}`);
    worker(path, 1)(...many);
    expect(recallWeights(path)).toHaveLength(100);
    for (const text of ['{', '[]', 'null', '{"startedAt":1,"paths":[1,null]}']) {
      writeFileSync(path, text);
      expect(recallWeights(path)).toEqual([]);
    }
    expect(rememberWeights(['a'], { cwd: undefined, inherited: {} })).toHaveLength(1);
  });
});
