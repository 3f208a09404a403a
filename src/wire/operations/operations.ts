// Every operation that is described: the server's routes and the OpenAPI document follow from this list. Not
// listed: the verbs of workers (docs/protocol.md) and the paths of RunPod's API.
import { ACTIVITY_OPERATIONS } from '../resources/activity.ts';
import { BILLING_OPERATIONS } from '../resources/billing.ts';
import { budgets } from '../resources/budget.ts';
import { CATALOG_OPERATIONS } from '../resources/catalog.ts';
import { endpoints } from '../resources/endpoint.ts';
import { EVENT_OPERATIONS } from '../resources/events.ts';
import { KEY_OPERATIONS, keys } from '../resources/key.ts';
import { LIMITS_OPERATIONS } from '../resources/limits.ts';
import { networkVolumes } from '../resources/network-volume.ts';
import { NODE_OPERATIONS } from '../resources/nodes.ts';
import { POD_OPERATIONS, pods } from '../resources/pod-operations.ts';
import { registries } from '../resources/registry.ts';
import { SESSION_OPERATIONS } from '../resources/session.ts';
import { templates } from '../resources/template.ts';
import { VERSION_OPERATIONS } from '../resources/version.ts';
import { SCALER_OPERATIONS } from '../scaling/decision.ts';
import { JOB_OPERATIONS } from './job-operations.ts';
import { OPENAI_OPERATIONS } from './openai-operations.ts';
import type { Operation } from './operation.ts';
import type { FixedResource } from './resource.ts';
import { LB_OPERATIONS, PROBE_OPERATIONS, SYSTEM_OPERATIONS } from './system-operations.ts';

export const DESCRIBED_RESOURCES = {
  ...{ pods, endpoints, templates, keys, networkVolumes, registries, budgets },
} satisfies Readonly<Record<string, FixedResource>>;

export const OPERATIONS: readonly Operation[] = [
  ...Object.values(JOB_OPERATIONS),
  ...Object.values(OPENAI_OPERATIONS),
  ...Object.values(DESCRIBED_RESOURCES).flatMap(({ operations }) => Object.values(operations)),
  ...Object.values(POD_OPERATIONS),
  ...Object.values(SCALER_OPERATIONS),
  ...Object.values(VERSION_OPERATIONS),
  ...Object.values(CATALOG_OPERATIONS),
  ...Object.values(BILLING_OPERATIONS),
  ...Object.values(KEY_OPERATIONS),
  ...Object.values(LIMITS_OPERATIONS),
  ...Object.values(NODE_OPERATIONS),
  ...Object.values(SESSION_OPERATIONS),
  ...Object.values(ACTIVITY_OPERATIONS),
  ...Object.values(EVENT_OPERATIONS),
  ...Object.values(SYSTEM_OPERATIONS),
  ...PROBE_OPERATIONS,
  ...LB_OPERATIONS,
];
