// A button that saves a value as a file. The bytes are made when it is pressed.

interface DownloadProps {
  label: string;
  /** Name of the file. */
  file: string;
  read: () => string;
  /** Never a type that a browser would run. */
  type?: 'application/json' | 'text/plain';
}

/** Time after which no browser still reads the file's URL. */
const RELEASE_MS = 60_000;

export function Download({ file, label, read, type = 'application/json' }: DownloadProps) {
  const save = () => {
    const url = URL.createObjectURL(new Blob([read()], { type }));
    const link = document.createElement('a');
    link.href = url;
    link.download = file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), RELEASE_MS);
  };
  return (
    <button type="button" onClick={save}>
      {label}
    </button>
  );
}
