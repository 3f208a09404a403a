// Returns the time at which the handler started. The machine's monotonic clock is the same in all
// processes.
export default async function began(): Promise<string> {
  return String(process.hrtime.bigint());
}
