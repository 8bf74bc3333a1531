// SPDX-License-Identifier: MIT
// Whether a test is built with the thread sanitizer, which makes a thread and takes memory of its own: some things
// cannot be tested beside it.
#ifndef TRIREME_TESTS_THREAD_SANITIZER_H
#define TRIREME_TESTS_THREAD_SANITIZER_H

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif
#ifndef THREAD_SANITIZER
#define THREAD_SANITIZER 0
#endif

#endif
