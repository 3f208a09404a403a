/** Iterations of the event loop until the call has ended. */
export async function countIterations(call: () => Promise<unknown>): Promise<number> {
  let turns = 0;
  let isOver = false;
  const count = () => {
    turns += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  await call().finally(() => {
    isOver = true;
  });
  return turns;
}
