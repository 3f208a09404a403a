// Defaults of the platform's options, for callers that show or change them.
export { DEFAULT_SHARDS } from '../cluster/plan-shards.ts';
export { SESSION_IDLE_MS, SESSION_MAX_MS } from '../control/keys/sessions.ts';
export { DEFAULT_OVERCOMMIT } from '../control/limits/capacity.ts';
export { DEFAULT_QUOTAS, type Quotas } from '../control/limits/quotas.ts';
export { LIST_BYTES } from '../control/user-resources.ts';
export { type Containment, USUAL_CAPABILITIES } from '../engine/containment.ts';
