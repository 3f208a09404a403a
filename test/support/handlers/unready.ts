// Loads, but its setup fails: no worker with it becomes ready.
export function setup(): void {
  throw new Error('the model file is missing');
}

export default function run(): null {
  return null;
}
