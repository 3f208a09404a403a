// Counts the lines of batches that got a result, by endpoint, for metrics. In memory: since the start.
export type LineCounts = Readonly<Record<'completed' | 'failed', number>>;

const NO_LINES: LineCounts = { completed: 0, failed: 0 };

export class BatchLineCounts {
  readonly #counts = new Map<string, LineCounts>();

  /** Endpoints whose batches got results. */
  get endpoints(): Iterable<string> {
    return this.#counts.keys();
  }

  of(endpointId: string): LineCounts {
    return this.#counts.get(endpointId) ?? NO_LINES;
  }

  /** Call this after the commit of the results. */
  add(endpointId: string, { completed, failed }: LineCounts): void {
    const before = this.of(endpointId);
    const sum = { completed: before.completed + completed, failed: before.failed + failed };
    this.#counts.set(endpointId, sum);
  }

  /** Call this after the endpoint's row was removed. */
  forgetEndpoint(endpointId: string): void {
    this.#counts.delete(endpointId);
  }
}
