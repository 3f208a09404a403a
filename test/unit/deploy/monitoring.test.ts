// The alert rules and the dashboard ask only for metrics and labels that a platform has.
import { readFileSync } from 'node:fs';
import { expect, it, onTestFinished } from 'vitest';
import { startPlatform } from '../../support/api/platform.ts';
import { PodWorld } from '../../support/containers/pod-world.ts';
import { readDocumented, readTypes } from '../../support/documented-metrics.ts';

const SHARDS = { open: 1, failing: 0, givenUp: 0 };

/** Of Prometheus itself. */
const ADDED_LABELS = ['instance', 'job', 'le'];

/** The metrics of a real platform, as one with every kind of them. */
async function readPlatform(): Promise<string> {
  // Only a node has metrics of shards.
  const store = {
    findFault: async () => undefined,
    ...{ warnings: [], failures: new Map(), shards: SHARDS },
    measure: () => ({ database: 1, wal: 1, free: 1 }),
  };
  const world = await PodWorld.open();
  onTestFinished(() => world.close());
  const platform = await startPlatform({ server: { store, pods: world.pods } });
  return (await platform.call('/metrics')).text();
}

/** Names of a real platform's series. */
async function readKnown(): Promise<Set<string>> {
  return new Set(
    readTypes(await readPlatform()).flatMap(({ name, type }) => [
      name,
      ...(type === 'histogram' ? ['bucket', 'sum', 'count'].map((part) => `${name}_${part}`) : []),
    ]),
  );
}

function readAlerts(): string[] {
  const text = readFileSync('deploy/prometheus-alerts.yaml', 'utf8');
  const exprs = [...text.matchAll(/^ *expr: (['"])(.*)\1$/gm)].map(([, , expr = '']) => expr);
  expect(exprs).toHaveLength([...text.matchAll(/- alert: /g)].length);
  return exprs;
}

function readDashboard(): string[] {
  const { panels } = JSON.parse(readFileSync('deploy/grafana-dashboard.json', 'utf8'));
  return panels.flatMap(({ targets }: { targets: { expr: string }[] }) =>
    targets.map(({ expr }) => expr),
  );
}

function namesIn(expr: string): string[] {
  return [...expr.matchAll(/\b(?:millrace|nodejs|process)_\w+/g)].map(([name]) => name);
}

/** Each label in braces follows the name of its metric. */
function labelsIn(expr: string): { metric: string; label: string }[] {
  return [...expr.matchAll(/(\w+)\{([^}]*)\}/g)].flatMap(([, metric = '', body = '']) =>
    [...body.matchAll(/(\w+)(?==~?"|!)/g)].map(([label]) => ({ metric, label })),
  );
}

/** As docs/operations/metrics.md lists them. */
function documentedLabels(metric: string): string[] {
  const name = metric.replace(/_(bucket|sum|count)$/, '');
  const found = readDocumented('Metrics of the platform').find((each) => each.name === name);
  return [...(found?.labels ?? []), ...ADDED_LABELS];
}

it.each([
  ['alert rules', readAlerts],
  ['dashboard', readDashboard],
])('names only metrics and labels that exist in the %s', async (_name, read) => {
  const known = await readKnown();
  const exprs = read();
  expect(exprs.length).toBeGreaterThan(8);
  expect(exprs.flatMap(namesIn).filter((name) => !known.has(name))).toEqual([]);
  const foreign = exprs.filter((expr) => namesIn(expr).length === 0);
  // Prometheus makes this one for each target.
  expect(foreign.filter((expr) => !expr.startsWith('up{job=~"millrace.*"}'))).toEqual([]);
  const wrong = exprs
    .flatMap(labelsIn)
    .filter(({ label, metric }) => !documentedLabels(metric).includes(label));
  expect(wrong).toEqual([]);
});
