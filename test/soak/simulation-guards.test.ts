// Proves that the simulation detects a broken queue: each test breaks one promise in a copy of the sources
// and expects the seeds to fail with the matching message.
import { type Break, describeGuards } from './broken-copy.ts';

const BREAKS: Break[] = [
  {
    promise: 'a commit that fails changes nothing in memory',
    file: 'src/store/live/live-endpoint.ts',
    from: 'return this.#replace(change.after, change.before);',
    to: 'return this.#replace(change.after, change.after);',
    seen: /has not ended|has the chunks|is before it/,
  },
  {
    promise: 'the database has every change of a job after the commit',
    file: 'src/store/live/unwritten-rows.ts',
    from: 'const { now, payloads, stored } = kept;',
    to: 'const { now, payloads, stored } = kept; if (now?.attempt === 2) continue;',
    seen: /has not ended|is lost/,
  },
  {
    promise: 'every lease is for the best ready job',
    file: 'src/store/live/ready-window.ts',
    from: "this.#extent !== 'none' && comparePlaces(job, this.#extent) <= 0",
    to: "this.#extent !== 'none'",
    seen: /was leased, though job .* is before it/,
  },
  {
    promise: 'a job reaches one terminal status only',
    file: 'src/queue/lifecycle/lifecycle.ts',
    from: 'if (isTerminal(job.status)) return { refused:',
    to: 'if (job.attempt < 0) return { refused:',
    seen: /left a terminal status/,
  },
  {
    promise: 'the platform loses no acknowledged report',
    file: 'src/queue/reports/reports.ts',
    from: 'yield* applyReport(tx',
    to: "if (report.kind !== 'outcome' || report.seq % 5 > 0) yield* applyReport(tx",
    seen: /the (completion|failure) of attempt \d+ is lost/,
  },
  {
    promise: 'a job never has two live leases',
    file: 'src/queue/lifecycle/lifecycle.ts',
    from: "case 'renew':\n      return",
    to: "case 'renew':\n      if (job.releases < 1) return change({ ...job, status: 'IN_QUEUE', releases: 1 });\n      return",
    seen: /a second live lease/,
  },
  {
    promise: 'a report with an older token does not change a job',
    file: 'src/queue/lifecycle/lifecycle.ts',
    from: 'if (job.lease?.token !== report.token) {',
    to: 'if (job.lease?.token !== report.token && report.seq <= job.lastSeq) {',
    seen: /was applied, though a newer attempt has the job/,
  },
  {
    promise: 'a repeated report counts once',
    file: 'src/queue/lifecycle/lifecycle.ts',
    from: "if (report.seq <= job.lastSeq) return { answer: 'duplicate' };",
    to: "if (report.seq <= job.lastSeq) return 'apply';",
    seen: /was applied twice/,
  },
  {
    promise: 'a stream has no chunk of an old attempt after a reset',
    file: 'src/queue/reports/streams.ts',
    from: 'if (after.attempt < job.attempt) return',
    to: 'if (after.attempt < 1) return',
    seen: /the stream of job/,
  },
  {
    promise: 'the queue does not requeue a job without limit',
    file: 'src/queue/lifecycle/attempt-end.ts',
    from: 'if (!alone) return suspect(job, moment);',
    to: 'if (detail) return change(requeue({ ...job, solo: true }, 0, moment));',
    seen: /requeued uncounted/,
  },
  {
    promise: 'the queue counts releases',
    file: 'src/queue/lifecycle/attempt-end.ts',
    from: 'releases: job.releases + 1',
    to: 'releases: job.releases',
    seen: /requeued uncounted|\d+ attempts for \d+/,
  },
  {
    promise: 'a job does not fail because of another job',
    file: 'src/queue/leases/departures.ts',
    from: 'const alone = ended.length === 1;',
    to: 'const alone = true;',
    seen: /suffers for what others did/,
  },
  {
    promise: 'the platform extends leases after its restart',
    file: 'src/queue/queue.ts',
    from: 'await extendLeases(this.#parts, 0)',
    to: 'await store.read((tx) => tx.leasedJobs())',
    seen: /expired \d+ ms after the platform came back/,
  },
  {
    promise: 'a job does not run again if its outcome is on the disk of a dead worker',
    file: 'src/queue/leases/departures.ts',
    from: 'job.lease !== null && delivering.has(job.lease.token)',
    to: 'job.lease === null && delivering.has(job.id)',
    seen: /ran again after attempt \d+, which survived|has not ended/,
  },
  {
    promise: 'what no job has is deleted',
    file: 'src/queue/sweeper.ts',
    from: 'await changes.inSlice(() => payloads.deleteSome())',
    to: 'clock.now() < 0 && (await changes.inSlice(() => payloads.deleteSome()))',
    seen: /payloads are left/,
  },
];

describeGuards({ name: 'the simulation', kind: 'platform', seeds: 200, breaks: BREAKS });
