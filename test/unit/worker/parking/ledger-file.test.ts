// Worker processes that share a device by the ledger and are killed at any step: no model is ever resumed without room.
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { readLines } from '../../../../src/base/text/line-reader.ts';
import type { Ledger } from '../../../../src/worker/parking/ledger.ts';
import { LedgerFile } from '../../../../src/worker/parking/ledger-file.ts';
import {
  compileDriver,
  leaveOutWithoutCompiler,
  removeDriver,
  StandInDevice,
} from '../../../support/cuda/stand-in.ts';
import { leaveOutWithoutPython } from '../../../support/python.ts';

const isLeftOut = leaveOutWithoutCompiler('ledger-file') || leaveOutWithoutPython('ledger-file');
const WORKER = resolve(import.meta.dirname, '../../../support/cuda/tenant-worker.ts');
const STEPS = ['start', 'suspend', 'parked', 'reserve', 'resume', 'resident', 'switch'];
/** 1,000 take half a minute on a quiet machine. */
const SWITCHES = Number(process.env['SWITCHES'] ?? 100);

let folder = '';

function makeLedger(): string {
  const path = mkdtempSync(join(tmpdir(), 'millrace-ledger-'));
  onTestFinished(() => rmSync(path, { recursive: true }));
  return path;
}

describe.skipIf(isLeftOut)('two workers on one device', () => {
  beforeAll(() => {
    folder = compileDriver();
  });
  afterAll(() => removeDriver(folder));

  it(`take ${SWITCHES} turns and are killed at each step`, { timeout: 300_000 }, async () => {
    const device = new StandInDevice(folder, { totalMb: 1_000 });
    const ledger = makeLedger();
    const counts = { a: 0, b: 0 };
    const kills = [...STEPS];
    const running = new Map<string, ChildProcess>();
    const { promise, reject, resolve: finish } = Promise.withResolvers<void>();
    let isOver = false;
    let sinceKill = 0;
    const noteStep = (id: 'a' | 'b', step: string, child: ChildProcess) => {
      if (isOver) return;
      const failed = device.tenants.filter(({ state }) => state === 'failed');
      if (failed.length > 0) reject(new Error(`resumed without room: ${JSON.stringify(failed)}`));
      if (step === 'switch') counts[id] += 1;
      sinceKill += 1;
      // Both lines of work go on between two kills.
      if (step === kills[0] && (step === 'start' || sinceKill > 20)) {
        kills.shift();
        sinceKill = 0;
        child.kill('SIGKILL');
      }
      if (counts.a + counts.b >= SWITCHES && kills.length === 0) finish();
    };
    const start = (id: 'a' | 'b') => {
      const child = spawn(process.execPath, [WORKER, ledger, id, '700'], {
        env: { ...process.env, ...device.environment },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      running.set(id, child);
      readLines(child.stdout, { maxChars: 100, onLine: (step) => noteStep(id, step, child) });
      child.on('exit', (code, signal) => {
        if (isOver) return;
        if (signal === 'SIGKILL') start(id);
        else reject(new Error(`worker ${id} ended with ${code ?? signal}`));
      });
    };
    onTestFinished(() => {
      isOver = true;
      for (const child of running.values()) child.kill('SIGKILL');
    });
    start('a');
    start('b');
    await promise;
    expect(counts.a).toBeGreaterThan(SWITCHES / 10);
    expect(counts.b).toBeGreaterThan(SWITCHES / 10);
  });
});

describe('the file of the ledger', () => {
  const gone = { pid: 1, startTicks: 'long ago', bootId: 'an earlier boot' };

  it('begins anew after a damage, and forgets dead tenants', async () => {
    const ledger = makeLedger();
    writeFileSync(join(ledger, 'gpu-ledger.json'), '[{"id":');
    const file = new LedgerFile(ledger);
    const tenant = { id: 'a', device: 'GPU-0', state: 'waking', bytes: 5, since: 1 } as const;
    await file.change((before) => [[...before, { ...tenant, process: gone }], undefined]);
    expect(await file.change((before): [Ledger, Ledger] => [before, before])).toEqual([]);
  });

  it('says that its folder is gone', async () => {
    const ledger = makeLedger();
    mkdirSync(join(ledger, 'sub'));
    rmSync(join(ledger, 'sub'), { recursive: true });
    const change = new LedgerFile(join(ledger, 'sub')).change((before) => [before, undefined]);
    await expect(change).rejects.toThrow(join(ledger, 'sub'));
  });

  it('changes one after the other', async () => {
    const file = new LedgerFile(makeLedger());
    const order: string[] = [];
    const act = (name: string) =>
      file.change(async (before) => {
        order.push(`${name} begins`);
        await new Promise((resolve) => setImmediate(resolve));
        order.push(`${name} ends`);
        return [before, undefined];
      });
    await Promise.all([act('a'), act('b')]);
    const [first = ''] = order[0]?.split(' ') ?? [];
    const second = first === 'a' ? 'b' : 'a';
    expect(order).toEqual([
      `${first} begins`,
      `${first} ends`,
      `${second} begins`,
      `${second} ends`,
    ]);
  });
});
