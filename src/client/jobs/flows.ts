// Calls about flows: graphs of jobs that one request submits.
import type { FlowList, FlowRecord, FlowReference } from '../../wire/job/flow-records.ts';
import type { FlowRequest } from '../../wire/job/job.ts';
import { FLOW_ROUTES } from '../../wire/routes/routes.ts';
import { type ApiCaller, callOf } from '../api-caller.ts';
import { chooseTrace, type TraceOptions } from './submissions.ts';

interface FlowCallOptions {
  signal?: AbortSignal;
}

export interface FlowSelection extends FlowCallOptions {
  /** Names of jobs. Default: all. */
  jobs?: readonly string[];
}

export interface FlowListOptions extends FlowCallOptions {
  cursor?: string;
  /** 1 to 100. Default 100. */
  limit?: number;
}

export interface FlowsClient {
  /**
   * Queues all jobs of the graph, or none. Without an `idempotencyKey` it is not repeated if no answer arrives. `flow` is at
   * most 10 MB of JSON.
   */
  run(flow: FlowRequest, options?: FlowCallOptions & TraceOptions): Promise<FlowReference>;
  /** The flow with its jobs and edges. */
  show(flowId: string, options?: FlowCallOptions): Promise<FlowRecord>;
  /** One page, the newest first. */
  list(options?: FlowListOptions): Promise<FlowList>;
  /** Cancels the jobs that have not ended. @returns their number */
  cancel(flowId: string, options?: FlowSelection): Promise<{ changed: number }>;
  /**
   * Queues the failed and skipped jobs again, with `jobs` only these and what follows from them. @returns their number.
   * @throws ApiError 409 if none can be retried
   */
  retry(flowId: string, options?: FlowSelection): Promise<{ changed: number }>;
}

export function connectFlows(caller: ApiCaller, endpoint: string): FlowsClient {
  const ofFlow = (flow: string) => ({ endpoint, flow });
  const change = (
    route: typeof FLOW_ROUTES.cancelFlow | typeof FLOW_ROUTES.retryFlow,
    flow: string,
    { jobs, signal }: FlowSelection,
  ) =>
    caller.json<{ changed: number }>({
      ...callOf(route, ofFlow(flow)),
      ...(jobs && { text: JSON.stringify({ jobs }) }),
      repeatable: route === FLOW_ROUTES.cancelFlow,
      signal,
    });
  return {
    run: async (flow, { signal, traceparent, tracestate } = {}) =>
      caller.json<FlowReference>({
        ...callOf(FLOW_ROUTES.runFlow, { endpoint }),
        headers: await chooseTrace({ traceparent, tracestate }),
        text: JSON.stringify(flow),
        repeatable: flow.idempotencyKey !== undefined,
        signal,
      }),
    show: (flow, { signal } = {}) =>
      caller.json<FlowRecord>({ ...callOf(FLOW_ROUTES.getFlow, ofFlow(flow)), signal }),
    list: ({ signal, ...query } = {}) =>
      caller.json<FlowList>({ ...callOf(FLOW_ROUTES.listFlows, { endpoint }), query, signal }),
    cancel: (flow, selection = {}) => change(FLOW_ROUTES.cancelFlow, flow, selection),
    retry: (flow, selection = {}) => change(FLOW_ROUTES.retryFlow, flow, selection),
  };
}
