// Rows that an older version has stored: they lack the fields that came later.
import { expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { ManualClock } from '../../../src/base/clock.ts';
import { openTemplates } from '../../../src/control/endpoints/templates.ts';
import { LivePods } from '../../../src/control/pods/live-pods.ts';
import { StoredResources } from '../../../src/control/stored-resources.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../src/store/store.ts';
import { type StoredBudget, storedBudget } from '../../../src/wire/resources/budget.ts';
import { defaultsOf } from '../../../src/wire/resources/field.ts';
import { BUDGET_FIELDS, POD_FIELDS, TEMPLATE_FIELDS } from '../../../src/wire/resources/fields.ts';
import { states } from '../../support/containers/pod-states.ts';

const TIME = '2026-01-15T09:30:00.000Z';
const json = z.record(z.string(), z.unknown());

function openStore(): Store {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  return store;
}

function put(
  store: Store,
  kind: string,
  body: { id: string; [member: string]: unknown },
): Promise<void> {
  const row = { kind, id: body.id, userId: 'ada', parent: '', position: 1 };
  return store.write((tx) => tx.putResource({ ...row, body: JSON.stringify(body) }));
}

it('reads a pod without the fields that have a default or may be null', async () => {
  const store = openStore();
  const clock = new ManualClock();
  const defaults = { ...defaultsOf(POD_FIELDS), registry: null, template: null };
  const spec = json.parse(states.exited.spec);
  for (const name of Object.keys(defaults)) delete spec[name];
  await put(store, 'pod', { ...states.exited, spec });
  const pods = await LivePods.open({ store, clock, gpuDevices: () => [] });
  expect(pods.get('pod_1')).toEqual(states.exited);
  expect(pods.get('pod_1')?.spec).toMatchObject(defaults);
});

it('reads a template without the fields that have a default', async () => {
  const store = openStore();
  const id = 'tpl_1';
  await put(store, 'template', {
    ...{ id, name: 'one', image: 'img', env: {}, createdAt: TIME, version: 1 },
  });
  const catalog = { judgeRegistry: () => [], resolveRegistry: (_: string, name: string) => name };
  const templates = await openTemplates({
    ...{ store, clock: new ManualClock(), engine: 'docker', catalog },
  });
  expect(templates.get('ada', id)).toMatchObject(defaultsOf(TEMPLATE_FIELDS));
});

it('reads a budget without the fields that have a default', async () => {
  const store = openStore();
  const budget = { id: 'bud_1', name: 'month', limit: 5, setBy: 'user', createdAt: TIME };
  await put(store, 'budget', budget);
  const budgets = await StoredResources.open<never, never, StoredBudget>({
    ...{ store, clock: new ManualClock(), name: 'budgets', prefix: 'bud', record: storedBudget },
    rules: { compose: () => storedBudget.parse(budget) },
  });
  expect(budgets.get('ada', 'bud_1')).toMatchObject(defaultsOf(BUDGET_FIELDS));
});
