// The folder of an attempt exists on disk as long as the attempt runs, however the attempt ends.
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { runHandler } from '../../../src/harness/run-handler.ts';
import {
  type FolderOwner,
  isAbandoned,
  nameTempFolder,
  removeAbandonedFolders,
} from '../../../src/worker/leftovers.ts';
import { WorkerProcess } from '../../../src/worker/supervisor/worker-process.ts';
import { readOutput } from '../../support/workers/leases.ts';
import { startThreads, writeHandler } from '../../support/workers/thread-script.ts';

const source = `
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
export const config = { concurrency: 2 };
export default async function ({ input }, ctx) {
  const folder = ctx.tempFolder();
  writeFileSync(join(folder, 'file'), 'content');
  if (ctx.tempFolder() !== folder) throw new Error('another folder');
  ctx.progress(folder);
  if (input === 'fail') throw new Error('on purpose');
  if (input === 'wait') await new Promise((_, reject) => ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason)));
  if (input === 'block') { await new Promise((r) => setTimeout(r, 100)); for (;;); }
  if (input === 'exit') { await new Promise((r) => setTimeout(r, 100)); process.exit(3); }
  return folder;
}`;

function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-temp-folders-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function start() {
  const tempFolder = join(makeFolder(), 'attempts');
  const threads = await startThreads({ handlerPath: await writeHandler(source), tempFolder });
  return { ...threads, tempFolder };
}

describe('the folder of an attempt', () => {
  it('can be read by the worker’s user only, and each attempt has its own', async () => {
    const { begin, tempFolder } = await start();
    const [first, second] = [begin('wait'), begin('wait')];
    await Promise.all([first.hasBegun, second.hasBegun]);
    const paths = [first, second].map(({ sink }) => String(sink.progressValues[0]));
    expect(new Set(paths).size).toBe(2);
    for (const path of paths) {
      expect(path.startsWith(tempFolder)).toBe(true);
      expect(statSync(path).mode & 0o777).toBe(0o700);
      expect(readdirSync(path)).toEqual(['file']);
    }
  });

  it.each([
    ['returns', 'return'],
    ['throws', 'fail'],
    ['is cancelled', 'wait'],
    ['does not let go, so that its thread is killed', 'block'],
    ['ends its thread', 'exit'],
  ])('is removed when the attempt %s', async (_, input) => {
    const { begin } = await start();
    const job = begin(input);
    await job.hasBegun;
    const path = String(job.sink.progressValues[0]);
    if (input === 'wait' || input === 'block') job.stop('cancelled');
    const end = await job.end;
    if (input === 'return') expect(readOutput(end)).toBe(path);
    await expect.poll(() => existsSync(path), { timeout: 10_000 }).toBe(false);
  });

  it('leaves nothing of the worker when the worker stops', async () => {
    const { begin, executor, tempFolder } = await start();
    await begin('return').end;
    await executor.stop();
    expect(existsSync(tempFolder)).toBe(false);
  });

  it('does not exist for a handler that does not ask for it', async () => {
    const tempFolder = join(makeFolder(), 'attempts');
    const handlerPath = await writeHandler('export default () => 1;');
    const { begin } = await startThreads({ handlerPath, tempFolder });
    await begin('x').end;
    expect(existsSync(tempFolder)).toBe(false);
  });

  it('exists in tests of handlers too, and for no code that outlives the attempt', async () => {
    let late: (() => string) | undefined;
    const { output } = await runHandler((_: unknown, ctx: { tempFolder(): string }) => {
      late = ctx.tempFolder;
      return existsSync(ctx.tempFolder()) && ctx.tempFolder();
    }, {});
    await expect.poll(() => existsSync(String(output))).toBe(false);
    expect(late).toThrow('the attempt has ended');
  });
});

describe('the folder of a worker process', () => {
  it('is removed by its supervisor when the process is killed', async () => {
    const program = `
      const path = require('node:path').join(require('node:os').tmpdir(),
        'millrace-attempts.' + process.env.MILLRACE_PROCESS_TAG + '.1.2.3.00000000');
      require('node:fs').mkdirSync(path + '/1/7', { recursive: true });
      console.log(path);
      process.on('message', () => {});`;
    const lines: string[] = [];
    const worker = new WorkerProcess({
      command: [process.execPath, '-e', program],
      environment: process.env,
      onLine: (line) => lines.push(line),
    });
    await expect.poll(() => lines.length, { timeout: 20_000 }).toBe(1);
    const path = lines[0] ?? '';
    expect(existsSync(path)).toBe(true);
    worker.kill();
    await worker.ended;
    await expect.poll(() => existsSync(path), { timeout: 20_000 }).toBe(false);
  });

  it('is removed by a later worker if its process is dead, and stays if that lives', async () => {
    const own = nameTempFolder('test-tag');
    const left = own.replace(/\.(\d+)\.(\d+)\./, '.$1.1.');
    for (const path of [own, left]) mkdirSync(path);
    onTestFinished(() => rmSync(own, { recursive: true, force: true }));
    writeFileSync(join(left, 'file'), '');
    expect(left).not.toBe(own);
    await removeAbandonedFolders();
    expect([existsSync(own), existsSync(left)]).toEqual([true, false]);
  });

  const name = 'millrace-attempts.0d8f-1.41.900.4026531836.abcdef01';
  const here = { pidNamespace: '4026531836', bootId: 'abcdef01-7777' };
  const dead = () => false;

  it.each([
    ['its process is dead', name, here, dead, true],
    ['its process lives', name, here, () => true, false],
    [
      'it belongs to another process ID namespace',
      name,
      { ...here, pidNamespace: '1' },
      dead,
      false,
    ],
    ['it belongs to another boot, or another machine', name, { ...here, bootId: 'f' }, dead, false],
    ['its name has another form', 'millrace-attempts.x', here, dead, false],
  ])('counts as abandoned or not if %s', (_, found, where, alive, expected) => {
    const asked: FolderOwner[] = [];
    const isAlive = (owner: FolderOwner) => {
      asked.push(owner);
      return alive();
    };
    expect(isAbandoned(found, where, isAlive)).toBe(expected);
    for (const owner of asked) expect(owner).toMatchObject({ pid: 41, startTicks: '900' });
  });
});
