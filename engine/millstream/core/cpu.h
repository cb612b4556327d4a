#pragma once

namespace millstream {

/// Whether the CPU and the system support AVX2.
inline bool has_avx2() noexcept {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
#else
  return false;
#endif
}

}  // namespace millstream
