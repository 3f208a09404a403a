// What engines declare and how they fail.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { DOCKER_CAPABILITIES } from '../../../src/engine/docker/docker-engine.ts';
import { type EngineCapabilities, EngineError } from '../../../src/engine/engine.ts';
import {
  describeCapabilities as describeKubernetes,
  kubernetesSettings,
} from '../../../src/engine/kubernetes/settings.ts';
import { describeCapabilities } from '../../../src/engine/process/process-engine.ts';
import { listCapabilities } from '../../../src/wire/engine/capability-texts.ts';
import { engineCapabilities } from '../../../src/wire/resources/catalog.ts';

describe('the table of capabilities', () => {
  const EVERYWHERE = { tracking: '/', memory: '/', cpu: '/', pids: '/' };

  const ENGINES: Record<string, EngineCapabilities> = {
    process: describeCapabilities({
      groups: EVERYWHERE,
      maxProcesses: 4_096,
      limitsFolders: true,
    }),
    docker: DOCKER_CAPABILITIES,
    kubernetes: describeKubernetes(kubernetesSettings.parse({})),
  };

  it('is that of docs/engines.md, for each engine', () => {
    const columns = Object.values(ENGINES).map((has) =>
      listCapabilities(engineCapabilities.parse(has)),
    );
    const names = (columns[0] ?? []).map(({ name }) => name);
    const rows = names.map((name, at) => [name, ...columns.map((column) => column[at]?.value)]);
    const head = [['', ...Object.keys(ENGINES).map((name) => `\`${name}\``)], Array(4).fill('---')];
    const table = [...head, ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n');
    const text = readFileSync(new URL('../../../docs/engines.md', import.meta.url), 'utf8');
    const section = text.split('## What an engine can do\n')[1]?.split('\n## ')[0] ?? '';
    const shown = section.split('\n').filter((line) => line.startsWith('|'));
    expect(shown.join('\n')).toBe(table.replaceAll('|  |', '| |'));
  });

  it('says that an engine without control groups and quotas limits nothing', () => {
    const none = { tracking: null, memory: null, cpu: null, pids: null };
    const machine = { groups: none, maxProcesses: 4_096, limitsFolders: false };
    const { limits, mounts } = describeCapabilities(machine);
    expect(limits).toEqual({ memory: false, cpu: false, processes: false });
    expect(mounts.sizeLimit).toBe('never');
  });

  it('lists what an operator allows templates', () => {
    const nodeSelector = { pool: ['a', 'b'] };
    const templates = { nodeSelector, tolerations: [{ key: 'gpu' }], labels: ['team'] };
    const settings = kubernetesSettings.parse({ templates: { ...templates, storageClass: ['s'] } });
    expect(listCapabilities(engineCapabilities.parse(describeKubernetes(settings))).at(-1)).toEqual(
      {
        name: 'kubernetes',
        value: 'nodeSelector pool (a, b); tolerations (1); label team; storageClass (s)',
      },
    );
  });
});

describe('an error of an engine', () => {
  it('has a text of bounded length, although it may quote the answer of a registry', () => {
    const { message } = new EngineError('refused', `not pulled: ${'x'.repeat(1_000_000)}`);
    expect(message).toMatch(/^not pulled: x{1988}… \(998012 more characters\)$/);
    expect(new EngineError('unavailable', 'no node answers').message).toBe('no node answers');
  });
});
