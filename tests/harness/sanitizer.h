/* Is this build watched by a sanitizer, which keeps memory that was freed? */
#ifndef TEST_SANITIZER_H
#define TEST_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_IS_PLAIN false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MEMORY_IS_PLAIN false
#endif
#endif
#ifndef MEMORY_IS_PLAIN
#define MEMORY_IS_PLAIN true
#endif

#endif
