// Pods as another user, on a real platform that is root and below folders that others can enter.
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createPlatform } from '../../src/client/platform-client.ts';
import { createClient } from '../../src/client.ts';
import { findUnreadable } from '../../src/engine/process/pod-user.ts';
import { killPods } from '../support/containers/left-pods.ts';
import { Process } from '../support/processes.ts';

const nobody = { uid: 65_534, gid: 65_534, name: 'nobody' };
const isRoot = process.geteuid?.() === 0;
/** A checkout below a folder that is closed to others has nothing to show here. */
const canRun =
  isRoot && (await findUnreadable([process.execPath, process.cwd()], nobody)).length === 0;

let folder: string;
const started: Process[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-pod-user-'));
  await chmod(folder, 0o755);
});

afterEach(async () => {
  for (const each of started.splice(0)) await each.end();
  killPods(folder);
  await rm(folder, { recursive: true, force: true });
});

function serve(...args: string[]): Process {
  const all = ['serve', '--port', '0', '--key-file', 'keys', '--data', 'data/own', ...args];
  const run = new Process(all, { cwd: folder });
  started.push(run);
  return run;
}

async function connect(platform: Process) {
  const url = await platform.find(/ready at (http:\/\/127\.0\.0\.1:\d+)/);
  const keys = await readFile(join(folder, 'keys'), 'utf8');
  const key = /MILLRACE_ADMIN_KEY=(\S+)/.exec(keys)?.[1] ?? '';
  return { url, key, platform: createPlatform({ url, key }) };
}

describe.skipIf(!canRun)('a platform that is root', () => {
  it('runs pods as nobody, without access to its keys and data', async () => {
    const { platform, url } = await connect(serve());
    const paths = ['keys', 'data/own/millrace.db', 'data/own/lock.db', 'data/own/webhook-secrets'];
    const tries = paths.map((path) => `cat ${join(folder, path)} > /dev/null && echo read ${path}`);
    const script = `(${tries.join('; ')}; ls ${join(folder, 'data/own')}; id -u) > out; mv out done`;
    const scopes = ['pods:write', 'pods:read'];
    const { key } = await platform.keys.create({ name: 'k', scopes });
    const flavors = await Array.fromAsync(platform.catalog.cpus.list());
    const [flavor] = flavors;
    if (!flavor) throw new Error('there is no CPU flavor');
    const cpu = { id: flavor.id, vcpuCount: Math.min(...flavor.vcpuCounts), memory: 1 };
    const args = `sh -c '${script}; exec sleep 1000'`;
    await createPlatform({ url, key }).pods.create({ name: 'p', image: 'none', args, cpu });
    const disks = join(folder, 'data/own/pods/disks');
    let found: string | undefined;
    while (found === undefined) {
      await sleep(20);
      const [disk = ''] = await readdir(disks).catch(() => []);
      found = await readFile(join(disks, disk, 'done'), 'utf8').catch(() => undefined);
    }
    expect(found).toBe('65534\n');
  });

  it('serves an endpoint with a handler in a readable folder', async () => {
    const handler = join(folder, 'who.mjs');
    await writeFile(handler, 'export default () => process.getuid();\n');
    const { key, url, platform } = await connect(serve());
    const template = await platform.templates.create({ name: 't', image: 'none', handler });
    const endpoint = await platform.endpoints.create({ name: 'e', templateId: template.id });
    const jobs = createClient({ url, key, endpoint: endpoint.id });
    expect(await jobs.runsync({}, { waitMs: 60_000 })).toMatchObject({ output: 65_534 });
    const workers = join(folder, 'data/own/workers', endpoint.id);
    expect(await stat(workers)).toMatchObject({ uid: 65_534 });
  });

  it('runs pods as root below an unreadable folder, with a log line', async () => {
    await chmod(folder, 0o700);
    const platform = serve();
    await connect(platform);
    expect(await platform.find(/pods run as root: .*/)).toContain('cannot be read by nobody');
  });

  it.each([
    ['a user who cannot reach the data', 0o700, ['--pod-user', 'nobody'], '--pod-user root'],
    ['an unknown user', 0o755, ['--pod-user', 'mr-nowhere'], 'no user mr-nowhere'],
    ['a key file that the user can read', 0o755, ['--pod-user', '65534:65534'], 'chmod 600'],
  ])('does not start with %s', async (_what, mode, args, said) => {
    await writeFile(join(folder, 'keys'), '', { mode: 0o644 });
    await chmod(folder, mode);
    const platform = serve(...args);
    expect(await platform.exited).toBe(2);
    expect(platform.output).toContain(said);
  });
});
