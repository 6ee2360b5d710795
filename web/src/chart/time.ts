const exactly = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short",
  hour: "2-digit", minute: "2-digit" });

/** Returns a time in seconds as text: 29 Nov, 00:15. */
export const exactTime = (at: number): string => exactly.format(at * 1000);
