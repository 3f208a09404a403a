// Creates endpoints whose workers the platform starts, as processes of this machine.
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { request } from 'undici';
import { callPlatform } from './platform-calls.ts';
import { benchFile, type Platform, startPlatform } from './processes.ts';

const POLL_EVERY_MS = 20;

export interface Deployment {
  /** The worker: a handler of `handlers`, or a command line. */
  template: { handler: string } | { args: string; ports: string[] };
  /** Settings besides name and template. */
  endpoint: object;
}

/** Runs `measure` on a platform with the process engine. All processes have ended when this resolves. */
export async function withDeployment<T>(
  { endpoint, template }: Deployment,
  measure: (platform: Platform, endpointId: string) => Promise<T>,
): Promise<T> {
  const platform = await startPlatform([], ['--engine', 'process']);
  try {
    const handler = 'handler' in template ? { handler: benchFile(template.handler) } : {};
    const creation = { name: 'bench', image: 'none', ...template, ...handler };
    const templateId = await create(platform, '/v1/templates', creation);
    const id = await create(platform, '/v1/endpoints', { name: 'bench', templateId, ...endpoint });
    try {
      return await measure(platform, id);
    } finally {
      await remove(platform, `/v1/endpoints/${id}`);
      await waitForNoWorker(platform);
    }
  } finally {
    await platform.stop();
  }
}

/** Counts folders, because processes that are being ended still have theirs. */
export async function waitForNoWorker({ folder }: Platform): Promise<void> {
  const containers = join(folder, 'data', 'pods', 'containers');
  // The folder is created with the first container.
  const count = async () => (await readdir(containers).catch(() => [])).length;
  while ((await count()) > 0) await sleep(POLL_EVERY_MS);
}

/** @returns the ID */
export async function create(platform: Platform, path: string, body: object): Promise<string> {
  const { id } = JSON.parse(await callPlatform(platform, path, body));
  return String(id);
}

async function remove({ adminKey, url }: Platform, path: string): Promise<void> {
  const headers = { authorization: `Bearer ${adminKey}` };
  const { body } = await request(`${url}${path}`, { method: 'DELETE', headers });
  await body.dump();
}
