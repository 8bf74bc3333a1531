// SPDX-License-Identifier: MIT
// TensorBoard event files, written as their two published formats say.
//
// The file is a sequence of TFRecords; numbers are little-endian, and the checksums are CRC-32C in the masked form:
//
//   8 bytes: n | 4 bytes: checksum of those 8 | n bytes: one Event | 4 bytes: checksum of the Event
//
// An Event is a protocol buffer: wall_time = 1 (double), step = 2 (int64), file_version = 3 (string, the first record
// only) or summary = 5, whose value = 1 repeats { tag = 1 (string), simple_value = 2 (float) }. This is the one message
// written here, so there is no library for it. A record that the disk takes only in part is cut off again, because a
// reader would not find the next one behind it.
#include "trireme/train/events.h"
#include "trireme/base/crc32c.h"
#include "trireme/base/file.h"
#include "trireme/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_SIZE = 4096, HOST_SIZE = 256, TRIES = 1000 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; // wire types

struct tr_events {
  char path[PATH_SIZE];
};

static void put_little(tr_text *out, uint64_t value, int nbyte) {
  unsigned char bytes[8];
  for (int i = 0; i < nbyte; i++) bytes[i] = (unsigned char)(value >> 8 * i);
  tr_text_append_bytes(out, bytes, (size_t)nbyte);
}

static void put_varint(tr_text *out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) put_little(out, (value & 0x7f) | 0x80, 1);
  put_little(out, value, 1);
}

static void put_key(tr_text *out, int field, int wire_type) { put_varint(out, (uint64_t)(field << 3 | wire_type)); }

static void put_bytes(tr_text *out, int field, const void *data, size_t nbyte) {
  put_key(out, field, BYTES);
  put_varint(out, nbyte);
  tr_text_append_bytes(out, data, nbyte);
}

static void put_double(tr_text *out, int field, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_key(out, field, FIXED64);
  put_little(out, bits, sizeof bits);
}

static void put_float(tr_text *out, int field, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_key(out, field, FIXED32);
  put_little(out, bits, sizeof bits);
}

static void put_checksum(tr_text *out, const void *data, size_t nbyte) {
  put_little(out, tr_crc32c_masked(tr_crc32c(0, data, nbyte)), 4);
}

static void put_record(tr_text *out, const tr_text *event) {
  put_little(out, event->size, 8);
  if (!out->failed) put_checksum(out, out->data, 8);
  tr_text_append_bytes(out, event->data, event->size);
  put_checksum(out, event->data, event->size);
}

static tr_status append_record(const tr_events *events, const tr_text *event) {
  struct stat before;
  tr_text record = {0};
  put_record(&record, event);
  tr_status status = TR_OK;
  if (event->failed || record.failed) {
    status = tr_error(TR_ERR_MEMORY, "%s: no memory for a record", events->path);
  } else {
    off_t whole = stat(events->path, &before) == 0 ? before.st_size : 0;
    status = tr_file_append(events->path, record.data, record.size);
    if (status != TR_OK && truncate(events->path, whole) != 0) tr_error_prefix("half a record may be left behind");
  }
  tr_text_free(&record);
  return status;
}

// When it happened, for TensorBoard's axis of time; nothing here measures with it.
static void put_wall_time(tr_text *event) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  put_double(event, 1, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
}

// A name that no other start has: starts of one process within one second get a number at the end.
static tr_status create_file(const char *folder, tr_events *events) {
  char host[HOST_SIZE] = "";
  long long now = (long long)time(NULL);
  if (gethostname(host, sizeof host - 1) != 0 || !host[0]) strcpy(host, "unknown");
  for (int i = 0; i < TRIES; i++) {
    int n =
        snprintf(events->path, PATH_SIZE, "%s/events.out.tfevents.%010lld.%s.%ld", folder, now, host, (long)getpid());
    if (i > 0 && n < PATH_SIZE) n += snprintf(events->path + n, (size_t)(PATH_SIZE - n), ".%d", i);
    if (n >= PATH_SIZE) return tr_error(TR_ERR_IO, "%s: the name of a file in it would be too long", folder);
    int fd = open(events->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
      close(fd);
      return TR_OK;
    }
    if (errno != EEXIST) break;
  }
  return tr_error(TR_ERR_IO, "%s: cannot create: %s", events->path, strerror(errno));
}

tr_status tr_events_open(const char *folder, tr_events **out) {
  static const char version[] = "brain.Event:2";
  tr_text event = {0};
  TR_TRY(tr_file_make_folders(folder));
  tr_events *events = calloc(1, sizeof *events);
  if (!events) return tr_error(TR_ERR_MEMORY, "%s: no memory for its event file", folder);
  tr_status status = create_file(folder, events);
  if (status != TR_OK) goto free_events;
  put_wall_time(&event);
  put_bytes(&event, 3, version, sizeof version - 1);
  status = append_record(events, &event);
  tr_text_free(&event);
  if (status != TR_OK) goto free_events;
  *out = events;
  return TR_OK;
free_events:
  free(events);
  return status;
}

static void put_scalar(tr_text *summary, const tr_scalar *scalar) {
  tr_text value = {0};
  put_bytes(&value, 1, scalar->tag, strlen(scalar->tag));
  put_float(&value, 2, (float)scalar->value);
  put_bytes(summary, 1, value.data, value.size);
  summary->failed |= value.failed;
  tr_text_free(&value);
}

tr_status tr_events_scalars(tr_events *events, int64_t step, const tr_scalar *scalar, size_t n) {
  tr_text summary = {0}, event = {0};
  for (size_t i = 0; i < n; i++) put_scalar(&summary, &scalar[i]);
  put_wall_time(&event);
  put_key(&event, 2, VARINT);
  put_varint(&event, (uint64_t)step);
  put_bytes(&event, 5, summary.data, summary.size);
  event.failed |= summary.failed;
  tr_status status = append_record(events, &event);
  tr_text_free(&event);
  tr_text_free(&summary);
  return status;
}

void tr_events_close(tr_events *events) { free(events); }
