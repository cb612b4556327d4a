#include "millstream/codec/inflate.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millstream;
  if (size == 0) return 0;
  const Deflated format = data[0] == 0x1F ? Deflated::kGzip : Deflated::kRaw;
  return accept_or_refuse([&] {
    constexpr std::int64_t kLimit = 1 << 20;
    const auto out = inflated(fuzzed(data, size), format, kLimit, "fuzzed");
    require(static_cast<std::int64_t>(out.size()) <= kLimit);
  });
}
