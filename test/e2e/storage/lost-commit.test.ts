// A disk that fails to store a commit: the platform exits, and its next start has all that was acknowledged.
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createClient } from '../../../src/client.ts';
import { fetchChecked } from '../../support/network/checked-fetch.ts';
import { type CommandRun, Workplace } from '../cli/command-run.ts';

/** In the platform's process: `fdatasync` fails, in both forms, as soon as the file `broken` exists. */
const BREAK_DISK = `
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
const { existsSync, fdatasync, fdatasyncSync } = fs;
const fail = () => {
  const text = 'EIO: i/o error, fdatasync';
  return Object.assign(new Error(text), { code: 'EIO', syscall: 'fdatasync' });
};
fs.fdatasync = (descriptor, done) => {
  if (existsSync('broken')) setImmediate(done, fail());
  else fdatasync(descriptor, done);
};
fs.fdatasyncSync = (descriptor) => {
  if (existsSync('broken')) throw fail();
  fdatasyncSync(descriptor);
};
syncBuiltinESMExports();
`;

let place: Workplace;

beforeEach(() => {
  place = new Workplace();
});
afterEach(() => place.close());

function serve(nodeOptions: string): CommandRun {
  return place.start(
    ['serve', '--port', '0', '--data', 'data', '--endpoint', 'square', '--key-file', 'keys'],
    { env: { NODE_OPTIONS: nodeOptions } },
  );
}

async function connect(run: CommandRun) {
  const url = await run.until('stdout', /is ready at (\S+)\n/);
  const key = /MILLRACE_ADMIN_KEY=(\S+)/.exec(place.read('keys'))?.[1] ?? '';
  return createClient({ fetch: fetchChecked, url, key, endpoint: 'square', repeats: 0 });
}

it('ends the platform, and the next start has every acknowledged job', async () => {
  const preload = `data:text/javascript,${encodeURIComponent(BREAK_DISK)}`;
  const first = serve(`--import ${preload}`);
  const client = await connect(first);
  const { id } = await client.run({ n: 1 });
  place.write('broken', '');
  await expect(client.run({ n: 2 })).rejects.toThrow();
  expect(await first.ended).toMatchObject({ code: 1 });
  expect(first.stderr).toMatch(/store failed: .*EIO/);
  expect(first.stderr).toContain('the disk failed to store a commit; exiting');
  const second = serve('');
  expect((await (await connect(second)).status(id)).status).toBe('IN_QUEUE');
});
