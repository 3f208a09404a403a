// Handlers that wait, while the processes that know of the wait are killed at each point of it.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { PlatformProcess } from '../support/processes.ts';
import { until } from '../support/until.ts';
import { KilledWorker } from '../support/workers/killed-worker.ts';

const jobRef = z.object({ id: z.string() });
const seen = z.looseObject({
  status: z.string(),
  output: z.unknown().exactOptional(),
  waitReason: z.looseObject({ code: z.string() }).exactOptional(),
});
const listed = z.object({ jobs: z.array(z.object({ id: z.string() })) });

let platform: PlatformProcess;
let workers: KilledWorker[];

beforeAll(async () => {
  platform = await PlatformProcess.start({
    endpoints: ['parent', 'child'],
    args: ['--lease-ms', '2000', '--renew-every-ms', '500', '--take-wait-ms', '1000'],
  });
  workers = ['parent', 'child'].map(
    (endpoint) => new KilledWorker(platform, { id: endpoint, endpoint, handler: 'durable.ts' }),
  );
});

afterAll(() => platform.close());

async function killAll(): Promise<void> {
  await platform.kill();
  await Promise.all(workers.map((worker) => worker.endProcess('SIGKILL')));
  await platform.restart();
}

async function read(path: string): Promise<unknown> {
  return (await platform.fetch(path)).json();
}

it('run each step once and start each child once, whatever is killed', async () => {
  const folders = ['a', 'b', 'c'].map((name) => join(platform.folder, name));
  const ids: string[] = [];
  for (const folder of folders) {
    mkdirSync(folder);
    const answer = await platform.post('/v2/parent/run', { input: { folder } });
    ids.push(jobRef.parse(await answer.json()).id);
  }
  const notes = () =>
    folders.map((folder) => {
      try {
        return readFileSync(join(folder, 'notes'), 'utf8').trim().split('\n');
      } catch {
        return [];
      }
    });
  const noted = (pattern: RegExp) =>
    until(() => notes().every((lines) => lines.some((line) => pattern.test(line))));
  const goOn = (file: string) => {
    for (const folder of folders) writeFileSync(join(folder, file), '');
  };
  const waitReasons = async () => {
    const records = await Promise.all(ids.map((id) => read(`/v2/parent/status/${id}`)));
    return records.map((record) => seen.parse(record).waitReason?.code);
  };

  // The steps are stored; the attempts die.
  await noted(/^planned/);
  await killAll();
  goOn('start');
  // The children run; the parents hold no slot.
  await noted(/^child left/);
  await noted(/^child right/);
  expect(await waitReasons()).toEqual(ids.map(() => 'waits_for_child'));
  await killAll();
  goOn('children');
  // One has what it waited for, and its attempt dies. After a kill, each job runs alone.
  await until(() => notes().flat().includes('resumed'));
  await killAll();
  goOn('finish');
  for (const id of ids) {
    const record = await until(async () => {
      const now = seen.parse(await read(`/v2/parent/status/${id}`));
      return now.status === 'COMPLETED' && now;
    });
    expect(record.output).toEqual(['left', 'right']);
  }
  for (const lines of notes()) {
    expect(lines.filter((line) => line === 'plan')).toHaveLength(1);
    const children = new Set(lines.filter((line) => line.startsWith('child')));
    expect([...children].map((line) => line.split(' ')[1]).toSorted()).toEqual(['left', 'right']);
  }
  const { jobs } = listed.parse(await read('/v2/child/jobs'));
  expect(jobs).toHaveLength(2 * ids.length);
});
