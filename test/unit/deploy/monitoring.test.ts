// The alert rules and the dashboard ask only for metrics and labels that a platform has.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { startPlatform } from '../api/platform.ts';

const SHARDS = { open: 1, failing: 0, givenUp: 0 };

/** Of Prometheus itself. */
const ADDED_LABELS = ['instance', 'le'];

/** Names of a real platform's metrics. */
async function readKnown(): Promise<Set<string>> {
  // Only a node has metrics of shards.
  const store = {
    findFault: async () => undefined,
    ...{ warnings: [], failures: new Map(), shards: SHARDS },
    measure: () => ({ database: 1, wal: 1, free: 1 }),
  };
  const platform = await startPlatform({ server: { store } });
  const text = await (await platform.call('/metrics')).text();
  const types = [...text.matchAll(/^# TYPE (\w+) (\w+)/gm)];
  return new Set(
    types.flatMap(([, name = '', type]) => [
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
  const page = readFileSync('docs/operations/metrics.md', 'utf8');
  const name = metric.replace(/_(bucket|sum|count)$/, '');
  const listed = new RegExp(`^\\| \`${name}\\{([^}]*)\\}`, 'm').exec(page);
  return [...(listed?.[1] ?? '').split(','), ...ADDED_LABELS];
}

it.each([
  ['alert rules', readAlerts],
  ['dashboard', readDashboard],
])('the %s name only metrics and labels that exist', async (_name, read) => {
  const known = await readKnown();
  const exprs = read();
  expect(exprs.length).toBeGreaterThan(8);
  expect(exprs.flatMap(namesIn).filter((name) => !known.has(name))).toEqual([]);
  expect(exprs.filter((expr) => namesIn(expr).length === 0)).toEqual([]);
  const wrong = exprs
    .flatMap(labelsIn)
    .filter(({ label, metric }) => !documentedLabels(metric).includes(label));
  expect(wrong).toEqual([]);
});

it('every documented metric of the platform exists', async () => {
  const known = await readKnown();
  const page = readFileSync('docs/operations/metrics.md', 'utf8');
  const start = page.indexOf('## Health and metrics of the platform');
  const section = page.slice(start, page.indexOf('\n## ', start + 1));
  const names = [...section.matchAll(/^\| `(millrace_\w+)/gm)].map(([, name = '']) => name);
  expect(names.length).toBeGreaterThan(15);
  expect(names.filter((name) => !known.has(name))).toEqual([]);
});
