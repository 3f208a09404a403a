// RunPod's own MCP server, unchanged from npm, against a real platform: each tool that docs/runpod.md names. Skipped where npm
// does not have it.
import { execFileSync, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { PlatformProcess } from '../support/processes.ts';

const SERVER = '@runpod/mcp-server@4.0.0';
const cpu = { id: 'cpu', vcpuCount: 2 };
const container = { image: 'none', args: 'sleep 1000', disk: 5 };
const content = z.array(z.looseObject({ text: z.string() }));
const record = z.looseObject({ id: z.string().optional() });

const isThere = spawnSync('npm', ['view', SERVER, 'version']).status === 0;

describe.skipIf(!isThere)("RunPod's MCP server", () => {
  let folder: string;
  let platform: PlatformProcess;
  let agent: Client;

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'millrace-runpod-mcp-'));
    execFileSync('npm', ['install', '--prefix', folder, '--no-audit', '--no-fund', SERVER]);
    const secretsKey = join(folder, 'secrets-key');
    writeFileSync(secretsKey, randomBytes(32).toString('base64'), { mode: 0o600 });
    const machine = 'memory=65536,vcpus=64,disk=4096';
    platform = await PlatformProcess.start({
      endpoints: [],
      args: ['--engine', 'process', '--machine', machine, '--secrets-key-file', secretsKey],
    });
    agent = new Client({ name: 'test', version: '1' });
    const env = {
      PATH: process.env['PATH'] ?? '',
      RUNPOD_API_BASE_URL: `${platform.url}/runpod`,
      RUNPOD_SERVERLESS_API_URL: `${platform.url}/runpod/v2`,
      RUNPOD_API_KEY: platform.adminKey,
    };
    const args = [join(folder, 'node_modules/@runpod/mcp-server/dist/stdio.mjs')];
    await agent.connect(new StdioClientTransport({ command: process.execPath, args, env }));
  });

  afterAll(async () => {
    await agent?.close();
    await platform?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  async function read(name: string, args: Record<string, unknown> = {}): Promise<string> {
    const answer = await agent.callTool({ name, arguments: args });
    const [first] = content.parse(answer.content);
    if (answer.isError) throw new Error(`${name}: ${first?.text}`);
    return first?.text ?? '';
  }

  /** The ID in the tool's answer. */
  async function use(name: string, args: Record<string, unknown> = {}): Promise<string> {
    return record.parse(JSON.parse(await read(name, args))).id ?? '';
  }

  it('reads the catalog', async () => {
    const available = { include: ['AVAILABILITY'], product: ['POD'] };
    await use('list-gpu-types', available);
    await use('list-cpu-types', { ...available, vcpuCount: 2 });
    expect(await use('get-cpu-type', { id: 'cpu' })).toBe('cpu');
    await use('list-data-centers', { include: ['GPU_AVAILABILITY'] });
    expect(await use('get-data-center', { id: 'local' })).toBe('local');
    await use('list-public-templates');
  });

  it.each([
    ['template', 'templates', { name: 'x', serverless: true, ...container }, { name: 'y' }],
    [
      'network-volume',
      'network-volumes',
      { name: 'x', size: 10, dataCenter: 'local' },
      { size: 20 },
    ],
    ['registry', 'registries', { name: 'x', username: 'u', password: 'p' }, undefined],
    ['pod', 'pods', { name: 'x', cpu, ...container }, { name: 'y' }],
  ])('creates, reads, changes and deletes: %s', async (one, many, body, update) => {
    const id = await use(`create-${one}`, { body });
    expect(await read(`list-${many}`)).toContain(id);
    expect(await use(`get-${one}`, { id })).toBe(id);
    if (update) expect(await use(`update-${one}`, { id, body: update })).toBe(id);
    await use(`delete-${one}`, { id });
    // A terminated pod can still be read by its ID.
    expect(await read(`list-${many}`)).not.toContain(id);
  });

  it('creates, changes and deletes an endpoint, and handles its jobs', async () => {
    const scaling = { type: 'QUEUE_DELAY', queueDelay: 4 };
    const workers = { min: 0, max: 0 };
    const creation = { name: 'e', type: 'QUEUE', cpu: [cpu], scaling, workers, ...container };
    const id = await use('create-endpoint', { body: creation });
    await use('list-endpoints', { limit: 1 });
    expect(await use('get-endpoint', { id })).toBe(id);
    await use('update-endpoint', { id, body: { workers } });
    await use('update-endpoint', { id, body: { image: 'none:2' } });
    const jobId = await use('run-endpoint', { endpointId: id, input: {} });
    expect(await use('get-job-status', { endpointId: id, jobId })).toBe(jobId);
    await use('endpoint-health', { endpointId: id });
    await use('cancel-job', { endpointId: id, jobId });
    await use('purge-endpoint-queue', { endpointId: id });
    await use('delete-endpoint', { id });
  });

  it('gets 404 for what is not there', async () => {
    for (const name of ['list-billing', 'list-clusters', 'get-ssh-keys', 'list-delegations']) {
      await expect(use(name)).rejects.toThrow('404');
    }
  });
});
