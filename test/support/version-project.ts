// Projects of handlers for tests of versions: writes the files, packs them, uploads and deploys them.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { packFiles } from '../../src/archive/project-files.ts';
import type { Platform } from '../../src/client/platform-client.ts';
import type { EndpointRecord, Rollout } from '../../src/wire/resources/endpoint.ts';
import { until } from './until.ts';

/** Texts by path. */
export type ProjectTexts = Readonly<Record<string, string>>;

export async function packProject(files: ProjectTexts) {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-project-'));
  try {
    for (const [path, text] of Object.entries(files)) {
      await mkdir(dirname(join(folder, path)), { recursive: true });
      await writeFile(join(folder, path), text);
    }
    return await packFiles(folder, Object.keys(files));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** @returns the number of the new version */
export async function upload(
  platform: Platform,
  endpoint: string,
  files: ProjectTexts,
): Promise<number> {
  const { bytes, sha256 } = await packProject(files);
  const version = { archive: bytes, sha256, entry: 'handler.ts' };
  return (await platform.endpoints.versions(endpoint).upload(version)).version;
}

/** Waits for the end of the rollout that began last. */
export function followRollout(platform: Platform, endpoint: string): Promise<Rollout> {
  return until(
    async () => {
      const { rollout } = await platform.endpoints.get(endpoint);
      return rollout?.endedAt != null && rollout;
    },
    { everyMs: 100, limitMs: 120_000 },
  );
}

export async function deploy(
  platform: Platform,
  endpoint: string,
  version: number,
  timeout = 60,
): Promise<Rollout> {
  await platform.endpoints.versions(endpoint).deploy(version, { timeout });
  return followRollout(platform, endpoint);
}

/** An endpoint that has no handler before its first deployment. */
export async function createVersionedEndpoint(
  platform: Platform,
  changes: object = {},
): Promise<EndpointRecord> {
  const template = await platform.templates.create({ name: 'versions', image: 'none' });
  return platform.endpoints.create({
    ...{ name: 'versioned', templateId: template.id, source: 'VERSION', workersMax: 2 },
    ...{ idleTimeout: 2, ...changes },
  });
}

/** A handler that names its version, and waits as long as the job says. */
export function handlerOf(version: string, more = ''): string {
  return `import { setTimeout as sleep } from 'node:timers/promises';
import type { Job } from 'millrace';
${more}
export default async function run(job: Job<{ ms?: number }>) {
  await sleep(job.input.ms ?? 0);
  return { version: ${JSON.stringify(version)} };
}
`;
}
