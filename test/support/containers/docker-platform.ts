// Starts a platform whose engine is Docker, with an endpoint of workers in containers, and removes what it leaves.
import { mkdtempSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { createClient, createPlatform } from '../../../src/client.ts';
import type { EndpointCreation } from '../../../src/wire/resources/endpoint.ts';
import { fetchChecked } from '../network/checked-fetch.ts';
import { Process } from '../processes.ts';
import { docker } from './docker.ts';

export function findFreePort(): Promise<number> {
  return new Promise((done) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const bound = server.address();
      const port = typeof bound === 'object' && bound ? bound.port : 0;
      server.close(() => done(port));
    });
  });
}

interface Setup {
  template: { image: string; args?: string };
  endpoint?: Partial<Pick<EndpointCreation, 'source' | 'workersMax'>>;
  /** Of `millrace serve`. */
  options?: readonly string[];
}

/** On a free port of loopback; its data are in a new folder below `parent`. */
export async function serveOnDocker(parent: string, { endpoint, options = [], template }: Setup) {
  const place = mkdtempSync(join(parent, 'serve-'));
  const start = async (port: number) => {
    const own = ['--port', String(port), '--data', 'data', '--key-file', 'keys'];
    const serve = new Process(['serve', '--engine', 'docker', ...own, ...options], { cwd: place });
    await serve.find(/ready at/);
    return serve;
  };
  const port = await findFreePort();
  let serve = await start(port);
  const key = /MILLRACE_ADMIN_KEY=(\S+)/.exec(readFileSync(join(place, 'keys'), 'utf8'))?.[1];
  const access = { url: `http://127.0.0.1:${port}`, key, fetch: fetchChecked };
  const compute = createPlatform(access);
  const { id: templateId } = await compute.templates.create({ name: 'worker', ...template });
  const deployment = { name: 'on-docker', templateId, idleTimeout: 1, ...endpoint };
  const { id: endpointId } = await compute.endpoints.create(deployment);
  const name = readFileSync(join(place, 'data/engine-name'), 'utf8').trim();
  const only = ['--quiet', '--filter', `label=millrace.platform=${name}`];
  const listContainers = () => docker('ps', '--all', ...only);
  const listVolumes = () => docker('volume', 'ls', ...only);
  const close = async () => {
    await serve.end();
    const left = (await listContainers()).split('\n').filter(Boolean);
    if (left.length > 0) await docker('rm', '--force', '--volumes', ...left);
    const volumes = (await listVolumes()).split('\n').filter(Boolean);
    if (volumes.length > 0) await docker('volume', 'rm', '--force', ...volumes);
  };
  /** The same platform on another port. @returns a client for it */
  const move = async () => {
    await serve.end();
    const newPort = await findFreePort();
    serve = await start(newPort);
    const url = `http://127.0.0.1:${newPort}`;
    return createClient({ ...access, url, endpoint: endpointId });
  };
  const client = createClient({ ...access, endpoint: endpointId });
  return { serve, compute, client, endpointId, listContainers, listVolumes, move, close };
}
