// Client of pods.
import type { PodAction, PodRecord } from '../wire/resources/pod.ts';
import { fillPath } from '../wire/routes/route.ts';
import { POD_ROUTES } from '../wire/routes/routes.ts';
import type { ApiCaller } from './api-caller.ts';
import type { NewPod, PodChange } from './requests.ts';
import { connectResources, post, type ResourceOptions, type Resources } from './resource-calls.ts';

export interface PodLogOptions extends ResourceOptions {
  /** Bytes from the end of the log; 1 to 1,048,576. Default 65,536. */
  maxBytes?: number;
}

export interface PodsClient extends Omit<Resources<PodRecord, NewPod, PodChange>, 'delete'> {
  start(id: string, options?: ResourceOptions): Promise<PodRecord>;
  /** Stops the pod; its disk is kept. */
  stop(id: string, options?: ResourceOptions): Promise<PodRecord>;
  /** Restarts the pod with a new disk; its mounts are kept. */
  restart(id: string, options?: ResourceOptions): Promise<PodRecord>;
  /** Terminates the pod permanently; its record can be read for another day. */
  terminate(id: string, options?: ResourceOptions): Promise<void>;
  /** Returns the end of the pod's log. */
  log(id: string, options?: PodLogOptions): Promise<string>;
}

export function connectPods(caller: ApiCaller): PodsClient {
  const { delete: terminate, ...resources } = connectResources(caller, 'pods');
  const act =
    (action: PodAction): PodsClient['start'] =>
    (pod, options) => {
      const path = fillPath(POD_ROUTES.actOnPod, { pod });
      return post<PodRecord>(caller, path, { ...options, body: { action } });
    };
  return {
    ...resources,
    terminate,
    start: act('start'),
    stop: act('stop'),
    restart: act('restart'),
    async log(pod, { maxBytes: bytes, signal } = {}) {
      const path = fillPath(POD_ROUTES.getPodLog, { pod });
      return (await caller.answer({ path, query: { bytes }, signal })).body;
    },
  };
}
