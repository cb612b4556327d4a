#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "millstream/loader/plan.h"

namespace millstream {

/// A state is eight words that name the next batch: a check word of the plan's digest,
/// the two words of the key (as JAX stores them: high, low), the epoch, the step (low,
/// high), and two reserved.
inline constexpr std::size_t kStateWords = 8;
using State = std::array<std::uint32_t, kStateWords>;

/// The word that ties a state to plans of one shape.
inline std::uint32_t check_word(const Plan& plan) noexcept {
  return static_cast<std::uint32_t>(plan.digest() ^ (plan.digest() >> 32));
}

State encoded(const Plan& plan, const Position& position) noexcept;

/// Throws `ArgumentError` where the state was not made by a plan of this shape.
Position decoded(const Plan& plan, std::span<const std::uint32_t, kStateWords> state);

/// The state after the batch that `state` names, reserved words kept. Throws as
/// `decoded` does.
State next_state(const Plan& plan, std::span<const std::uint32_t, kStateWords> state);

}  // namespace millstream
