// What the pages of flows ask the platform for.
import { callOf } from '../../../../src/client/api-caller.ts';
import type { FlowList, FlowRecord } from '../../../../src/client.ts';
import { FLOW_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { caller } from '../../platform/calls.ts';
import { pathOf } from '../endpoint/frame.tsx';

/** `endpoint`: keeps the record of the flow. */
export interface FlowKey {
  endpoint: string;
  id: string;
}

const PAGE_SIZE = 50;

export function listFlows(
  endpoint: string,
  { cursor, signal }: { cursor: string | undefined; signal: AbortSignal },
): Promise<FlowList> {
  const call = callOf(FLOW_ROUTES.listFlows, { endpoint });
  return caller.json<FlowList>({ ...call, query: { cursor, limit: PAGE_SIZE }, signal });
}

export function readFlow({ endpoint, id }: FlowKey, signal: AbortSignal): Promise<FlowRecord> {
  return caller.json<FlowRecord>({
    ...callOf(FLOW_ROUTES.getFlow, { endpoint, flow: id }),
    signal,
  });
}

/** `jobs`: names. Default: all. */
export async function changeFlow(
  action: 'cancel' | 'retry',
  { endpoint, id }: FlowKey,
  jobs?: readonly string[],
): Promise<number> {
  const route = action === 'cancel' ? FLOW_ROUTES.cancelFlow : FLOW_ROUTES.retryFlow;
  const call = callOf(route, { endpoint, flow: id });
  const body = jobs && { jobs };
  const { changed } = await caller.json<{ changed: number }>({ ...call, body, repeatable: false });
  return changed;
}

export function pathOfFlow({ endpoint, id }: FlowKey): string {
  return `${pathOf(endpoint)}/flows/${encodeURIComponent(id)}`;
}
