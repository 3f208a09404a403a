// Large inputs and outputs, which are in files, of a platform that is killed at random instants: no job loses one, a
// backup has all of them, and none outlives its endpoint.
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { z } from 'zod';
import { createPlatform } from '../../src/client/platform-client.ts';
import { createClient } from '../../src/client.ts';
import { PlatformProcess } from '../support/processes.ts';
import { chooseSeed, createRandom } from '../support/random.ts';
import { Workplace } from './cli/command-run.ts';

const ENDPOINT = 'demo';
const ROUNDS = 4;
const CLIENTS = 3;
/** Of each round and client. */
const JOBS = 3;
const MB = 1_000_000;

const reference = z.object({ id: z.string() });
const record = z.object({ status: z.string(), output: z.unknown() });

let platform: PlatformProcess;
let restored: PlatformProcess;
let place: Workplace;

beforeEach(async () => {
  place = new Workplace();
  platform = await PlatformProcess.start({ endpoints: [ENDPOINT] });
  restored = await PlatformProcess.start({ endpoints: [] });
});

afterEach(async () => {
  await restored.close();
  await platform.close();
  await place.close();
});

const hash = (value: unknown) =>
  createHash('sha256').update(JSON.stringify(value)).digest('base64');

function listFiles({ folder }: PlatformProcess): string[] {
  return readdirSync(join(folder, 'data', 'millrace.db.payloads'));
}

/** Status of each job, and a hash of its output. */
async function readEnds({ adminKey, url }: PlatformProcess, ids: Iterable<string>) {
  const client = createClient({ url, key: adminKey, endpoint: ENDPOINT });
  const ends = new Map<string, string>();
  for (const id of ids) {
    const { output, status } = record.parse(await client.wait(id));
    ends.set(id, `${status} ${hash(output)}`);
  }
  return ends;
}

it('keeps every payload through kills and a backup, and removes them with the endpoint', async () => {
  const seed = chooseSeed(1);
  console.log(`payload-files: SEED=${seed}`);
  const random = createRandom(seed);
  const worker = platform.startWorker(ENDPOINT, '../../../handlers/echo.ts', '--threads', '2');
  const expected = new Map<string, string>();

  for (let round = 0; round < ROUNDS; round++) {
    let isKilled = false;
    const first = Promise.withResolvers<void>();
    const submit = async () => {
      for (let job = 0; job < JOBS && !isKilled; job++) {
        const bytes = MB + Math.floor(random() * 2 * MB);
        const input = { round, text: randomBytes((bytes * 3) / 4).toString('base64') };
        try {
          const answer = await platform.post(`/v2/${ENDPOINT}/run`, { input });
          expected.set(reference.parse(await answer.json()).id, `COMPLETED ${hash(input)}`);
          first.resolve();
        } catch (error) {
          if (!isKilled) throw error;
        }
      }
    };
    const submitting = Array.from({ length: CLIENTS }, submit);
    await first.promise;
    await sleep(Math.floor(random() * 400));
    isKilled = true;
    await platform.kill();
    await Promise.all(submitting);
    await platform.restart();
  }
  console.log(`payload-files: ${expected.size} jobs acknowledged`);
  expect(await readEnds(platform, expected.keys())).toEqual(expected);
  expect(listFiles(platform).length).toBeGreaterThanOrEqual(2 * expected.size);

  const data = join(restored.folder, 'data');
  await restored.process.end();
  rmSync(data, { recursive: true });
  const commands = [
    ['backup', 'copy', '--data', join(platform.folder, 'data')],
    ['restore', 'copy', '--data', data],
  ];
  for (const command of commands) expect(await place.run(command)).toMatchObject({ code: 0 });
  await restored.restart();
  expect(await readEnds(restored, expected.keys())).toEqual(expected);

  await worker.end();
  await createPlatform({ url: platform.url, key: platform.adminKey }).endpoints.delete(ENDPOINT);
  await expect.poll(() => listFiles(platform)).toEqual([]);
});
