// Why a queued job waits: the closed list of codes, and the form in a job's record. The platform decides in
// queue/waits.ts; docs/why-jobs-wait.md explains each code.

/** `no_gpu`, `no_capacity`, `budget`, `at_maximum` and `crashed` are also causes of scaling decisions. */
export const WAIT_CODES = [
  /** The delay of the job's policy is not over. */
  'delayed',
  /** The last attempt failed; the next one comes later. */
  'backing_off',
  /** As many jobs of its group run as the endpoint allows. */
  'group_at_limit',
  /** It ran out of memory on a GPU type, and no worker of a later type of the endpoint's list is connected. */
  'later_gpu_type',
  /** It must run alone in its process, and every worker still runs other jobs. */
  'runs_alone',
  /** A worker has a free slot and takes the job in its turn. */
  'worker_ready',
  /** All workers run other jobs. */
  'workers_busy',
  /** All workers run other jobs, and the endpoint has `workersMax` workers. */
  'at_maximum',
  /** No worker is connected, and the platform starts none now. */
  'no_worker',
  /** A worker starts. */
  'worker_starting',
  /** The image of the worker that starts is being pulled. */
  'image_pull',
  /** Workers end before they become ready. */
  'crashed',
  /** Workers cannot load the handler. */
  'handler_not_loaded',
  /** No version of the handler is deployed. */
  'no_version',
  /** No GPU of the endpoint's types is free. */
  'no_gpu',
  /** No machine has capacity for another worker. */
  'no_capacity',
  /** A budget is used up. */
  'budget',
] as const;
export type WaitCode = (typeof WAIT_CODES)[number];
