// Runs the registry of the Distribution project with a login, and puts one small image into it.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { docker } from './docker.ts';
import { findFreePort } from './docker-platform.ts';

const execute = promisify(execFile);
const POLL_MS = 50;

interface Login {
  username: string;
  password: string;
}

/** Returns which program is missing; undefined if all are there. */
export function findRegistryTrouble(): string | undefined {
  const folders = (process.env['PATH'] ?? '').split(delimiter);
  const missing = ['docker-registry', 'htpasswd', 'busybox'].filter(
    (program) => !folders.some((folder) => existsSync(join(folder, program))),
  );
  return missing.length === 0 ? undefined : `${missing.join(', ')} missing`;
}

/** On a free port of loopback, which an engine may reach without TLS. */
export async function serveImages({ password, username }: Login) {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-registry-'));
  const host = `127.0.0.1:${await findFreePort()}`;
  const users = join(folder, 'htpasswd');
  await execute('htpasswd', ['-Bbc', users, username, password]);
  const config = join(folder, 'config.json');
  await writeFile(
    config,
    JSON.stringify({
      version: '0.1',
      log: { level: 'error' },
      storage: { filesystem: { rootdirectory: join(folder, 'images') } },
      http: { addr: host },
      auth: { htpasswd: { realm: 'tests', path: users } },
    }),
  );
  const child = spawn('docker-registry', ['serve', config], { stdio: 'ignore' });
  const ended = once(child, 'exit');
  await untilAnswering(`http://${host}/v2/`);
  const image = `${host}/things/sleeper:1`;
  await push(image, folder, { host, password, username });
  const stop = async () => {
    child.kill();
    await ended;
    await docker('rmi', '--force', image).catch(() => {});
    await rm(folder, { recursive: true, force: true });
  };
  return { host, image, stop };
}

async function untilAnswering(url: string): Promise<void> {
  while (!(await fetch(url).catch(() => undefined))) await delay(POLL_MS);
}

/** Afterwards the engine does not have it any more. Its program sleeps. */
async function push(image: string, folder: string, login: Login & { host: string }): Promise<void> {
  const { host, password, username } = login;
  const root = join(folder, 'root');
  await mkdir(root);
  const { stdout } = await execute('sh', ['-c', 'command -v busybox']);
  await copyFile(stdout.trim(), join(root, 'busybox'));
  const archive = join(folder, 'root.tar');
  await execute('tar', ['-C', root, '-cf', archive, '.']);
  const entry = 'ENTRYPOINT ["/busybox"]';
  await docker('import', '--change', entry, '--change', 'CMD ["sleep", "600"]', archive, image);
  const auth = Buffer.from(`${username}:${password}`).toString('base64');
  const account = join(folder, 'account');
  await mkdir(account);
  await writeFile(join(account, 'config.json'), JSON.stringify({ auths: { [host]: { auth } } }));
  await docker('--config', account, 'push', image);
  await docker('rmi', '--force', image);
}
