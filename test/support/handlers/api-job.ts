// Returns the job as the handler sees it.
import type { Job } from 'millrace';

export default (job: Job): Job => job;
