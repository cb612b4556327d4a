#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "millstream/loader/plan.h"

namespace millstream {

/// A state is eight words that identify the next batch: a checksum of the plan's
/// digest, the two words of the key (high, low, as in JAX), the epoch, the step (low,
/// high), and two reserved words.
inline constexpr std::size_t kStateWords = 8;
using State = std::array<std::uint32_t, kStateWords>;

/// The first word of a state. It is equal for plans with equal digests.
inline std::uint32_t check_word(const Plan& plan) noexcept {
  return static_cast<std::uint32_t>(plan.digest() ^ (plan.digest() >> 32));
}

State encoded(const Plan& plan, const Position& position) noexcept;

/// Throws `ArgumentError` if the state belongs to a plan with another digest, or if its
/// step is outside the epoch.
Position decoded(const Plan& plan, std::span<const std::uint32_t, kStateWords> state);

/// The state of the batch after the one that `state` identifies. Keeps the reserved
/// words. Throws as `decoded` does.
State next_state(const Plan& plan, std::span<const std::uint32_t, kStateWords> state);

}  // namespace millstream
